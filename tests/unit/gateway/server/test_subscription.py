"""One subscription at a gateway: its client gets every event in order, or a resync."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette.gateway.server.backpressure import Load, LoadMonitor, OutboxMeter
from vedette.gateway.server.subscription import HoldReason, Phase, Subscription

moves = st.lists(
    st.sampled_from(["event", "pause", "unpause", "clog", "free", "ack", "answer", "part", "lose"]),
    max_size=80,
)


@given(moves, st.none() | st.integers(1, 4))
def test_no_sequence_of_operations_loses_an_event(script: list[str], limit: int | None):
    sub = Subscription("s", stream=1, seq=0, recipient_json=b"", max_unacked=limit)
    log: list[int] = []  # what the stream said: the window that keeps everything
    got: list[int] = []
    asked: list[int] = []
    for move in script:
        if move == "event":
            log.append(len(log) + 1)
            if sub.try_send(log[-1]):
                got.append(log[-1])
        elif move in ("pause", "clog"):
            sub.hold(HoldReason.PAUSED if move == "pause" else HoldReason.OUTBOX_FULL)
        elif move in ("unpause", "free"):
            if sub.release(HoldReason.PAUSED if move == "unpause" else HoldReason.OUTBOX_FULL):
                asked.append(sub.seq)
        elif move == "ack":
            if got and sub.on_ack(got[-1]):
                asked.append(sub.seq)
        elif move in ("answer", "part") and asked:
            answer_replay(sub, log, asked, got, chunk=2 if move == "part" else len(log) + 1)
        elif move == "lose" and asked and sub.phase is Phase.CATCHING:
            asked.clear()
            assert sub.mark_stale()
        sub.validate()
        assert got == log[: len(got)], "a hole, a repeat or a wrong order"
        if sub.phase is Phase.LIVE:
            assert got == log
        if limit is not None:
            assert sub.phase is not Phase.LIVE or len(got) >= len(log)


def answer_replay(sub: Subscription, log: list[int], asked: list[int], got: list[int], *, chunk: int) -> None:
    place = asked.pop()
    missed = [seq for seq in log if seq > place]
    more = len(missed) > chunk
    for seq in missed[:chunk]:
        if sub.holds or sub.phase is Phase.STALE:
            more = True
            break
        if seq > sub.seq:
            sub.mark_sent(seq)
            got.append(seq)
    if sub.on_replay(more=more):
        asked.append(sub.seq)


def test_a_stale_subscription_is_reported_once():
    sub = Subscription("s", stream=1, seq=0, recipient_json=b"")
    assert sub.mark_stale()
    assert not sub.mark_stale()
    assert not sub.try_send(1)
    sub.hold(HoldReason.PAUSED)
    assert not sub.release(HoldReason.PAUSED)
    assert sub.phase is Phase.STALE


@given(st.lists(st.integers(0, 120), max_size=40))
def test_load_levels_have_hysteresis(levels: list[int]):
    marks, load = LoadMonitor(100), Load.NORMAL
    for level in levels:
        before, load = load, marks.measure(level)
        if level >= 90:
            assert load is Load.SHED_ALL
        elif level >= 70:
            assert load is max(before, Load.SHED_LOW_PRIORITY)
        elif level >= 60:
            assert load is before
        else:
            assert load is Load.NORMAL


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=40))
def test_an_outbox_fills_at_the_high_mark_and_drains_at_the_low_mark(steps: list[tuple[bool, int]]):
    outbox, outbox_filled = OutboxMeter(100, 30), False
    for add, amount in steps:
        if add:
            changed = outbox.add(amount)
            assert changed == (not outbox_filled and outbox.waiting >= 100)
            outbox_filled = outbox_filled or changed
        else:
            left = min(amount, outbox.waiting)
            changed = outbox.drained(left)
            assert changed == (outbox_filled and left <= 30)
            outbox_filled = outbox_filled and not changed
        assert outbox.is_full == outbox_filled
