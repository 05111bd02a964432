"""The replay window against a model that retains everything."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from vedette.gateway.limits import ReplayLimits
from vedette.gateway.streams.replay_window import ReplayWindow, StreamHistory

STREAMS = 3


@dataclass
class Model:
    """Every event ever told, with its stream, size and time."""

    bounds: ReplayLimits
    delivered: list[tuple[int, int, int, float]] = field(default_factory=list)
    trimmed: set[int] = field(default_factory=set)

    def kept(self, now: float) -> list[tuple[int, int, int, float]]:
        """The longest run of latest events within all bounds."""
        live = [event for event in self.delivered if event[1] not in self.trimmed]
        kept: list[tuple[int, int, int, float]] = []
        size = 0
        for event in reversed(live):
            size += event[2]
            if (
                len(kept) >= self.bounds.events
                or size > self.bounds.bytes
                or event[3] < now - self.bounds.seconds
            ):
                break
            kept.append(event)
        return kept[::-1]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(0, STREAMS - 1), st.integers(0, 40)),
        st.tuples(st.just("wait"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, STREAMS - 1), st.integers(0, 30)),
    ),
    max_size=60,
)


@given(steps, st.integers(1, 10), st.integers(20, 120))
def test_the_window_evicts_the_oldest_event_and_knows_what_it_can_replay(
    script: list[tuple[str, int, int]], limit: int, size: int
):
    bounds = ReplayLimits(seconds=10.0, events=limit, bytes=size)
    window, model = ReplayWindow(bounds), Model(bounds)
    histories = [StreamHistory(evicted_seq=0, last_seq=0) for _ in range(STREAMS)]
    now, seq = 0.0, 0
    lost: set[int] = set()
    for step, which, amount in script:
        if step == "tell":
            seq += 1
            window.add(histories[which], seq, b"x" * amount, now)
            model.delivered.append((which, seq, amount, now))
        elif step == "wait":
            now += which
            window.expire(now)
        else:
            window.discard_up_to(histories[which], amount)
            model.trimmed |= {s for w, s, _, _ in model.delivered if w == which and s <= amount}
        kept = {event[1] for event in model.kept(now)} - lost
        lost |= {event[1] for event in model.delivered} - kept
        here = {event.seq for history in histories for event in history.events}
        assert here == kept
        assert len(window) == len(here) <= limit
        assert window.bytes == sum(len(e.suffix) for h in histories for e in h.events) <= max(size, 0)
        check_reach(histories, model, kept)


def check_reach(histories: list[StreamHistory], model: Model, kept: set[int]) -> None:
    """A stream reaches a place exactly when nothing after it is lost, and then has everything after it."""
    for which, history in enumerate(histories):
        own = [event[1] for event in model.delivered if event[0] == which]
        for place in range((own[-1] if own else 0) + 2):
            later = [s for s in own if s > place]
            whole = all(s in kept for s in later) and place <= (own[-1] if own else 0)
            assert history.can_replay_from(place) == whole
            if whole:
                assert [event.seq for event in history.events_after(place)] == later
