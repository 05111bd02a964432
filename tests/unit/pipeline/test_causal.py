"""Causal order over partitions that go at their own pace: nothing too early, nothing lost, all in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette.pipeline.causal import CausalHold, HeldTooMuch
from vedette.pipeline.ingest_desk import IngestDesk, Reached, Resync, Told
from vedette.pipeline.ingest_frames import Complete, Deliver, DeliveredChange


def change(offset: int, partition: int = 1, *, epoch: int = 1, again: bool = False) -> DeliveredChange:
    return DeliveredChange(
        tenant="t", collection="c", key=f"k{partition}", op="update", partition=partition, epoch=epoch, seq=offset,
        offset=offset, time_ms=0, update=[1], again=again,
    )  # fmt: skip


def told(offset: int, partition: int = 1, *, epoch: int = 1) -> Told:
    return Told(change(offset, partition, epoch=epoch), (), (1,), ())


def test_an_effect_waits_for_its_cause_in_a_slower_partition():
    hold = CausalHold()
    assert hold.take(told(2, partition=2)) == []
    assert hold.take(told(1, partition=1)) == []
    assert hold.take(Reached(2)) == [told(1, partition=1), told(2, partition=2)]


def test_idle_partitions_hold_nothing_up():
    hold = CausalHold()
    hold.take(told(5, partition=3))
    assert hold.take(Reached(4)) == []
    assert hold.take(Reached(9)) == [told(5, partition=3)]


def test_what_was_before_a_loss_is_let_go():
    hold = CausalHold()
    hold.take(told(1, partition=1))
    hold.take(told(2, partition=2))
    loss = Resync(1, 2, "lost")
    assert hold.take(loss) == [loss]
    hold.take(told(3, partition=1, epoch=2))
    assert hold.take(Reached(3)) == [told(2, partition=2), told(3, partition=1, epoch=2)]


def test_a_hole_in_the_order_is_said():
    hold = CausalHold(most=2)
    assert [hold.take(told(offset)) for offset in (1, 2, 3)] == [[], [], [HeldTooMuch(3)]]
    assert len(hold) == 0


BATCHES = st.lists(st.lists(st.integers(1, 4), max_size=6), max_size=6)
"""Batches of changes, each in one of four partitions."""


@given(BATCHES, st.integers(1, 3), st.randoms(use_true_random=False), st.booleans())
def test_in_the_order_of_the_journal_whatever_the_pace(batches, shares, chance, retried):
    """Partitions of different shares arrive interleaved at will; a batch may come twice, from its beginning."""
    desk, hold, handed, reached, offset = IngestDesk(), CausalHold(), [], 0, 0
    for partitions in batches:
        changes = [change(offset + place, partition) for place, partition in enumerate(partitions, 1)]
        offset += len(partitions)
        for attempt in range(2 if retried else 1):
            lines = [[c for c in changes if c.partition % shares == share] for share in range(shares)]
            frames: list[list[Deliver | Complete]] = [
                [Deliver(number=1, changes=[c]) for c in line] for line in lines
            ]
            if attempt == (1 if retried else 0):
                for share, line in enumerate(frames):
                    line.append(Complete(offset=offset, share=share, shares=shares, version=1))
            while any(frames):
                line = chance.choice([line for line in frames if line])
                for output in desk.take(line.pop(0)):
                    if isinstance(output, Reached):
                        reached = output.offset
                    for passed in hold.take(output):
                        assert isinstance(passed, Told)
                        assert passed.change.offset <= reached, (
                            "handed on before all partitions had passed it"
                        )
                        handed.append(passed.change.offset)
    assert handed == list(range(1, offset + 1))
