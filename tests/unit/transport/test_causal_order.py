"""Causal order across partitions of different pace: no change too early, none lost, all in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette.transport.causal_order import CausalBuffer
from vedette.transport.ingest_messages import Complete, Deliver, DeliveredChange
from vedette.transport.receiver import BatchCompleted, ChangeReceiver, MatchedChange


def change(offset: int, partition: int) -> DeliveredChange:
    return DeliveredChange(
        tenant="t", collection="c", key=f"k{partition}", op="update", partition=partition, epoch=1, seq=offset,
        offset=offset, time_ms=0, update=[1],
    )  # fmt: skip


def test_an_effect_waits_for_its_cause_in_a_slower_partition():
    hold: CausalBuffer[str] = CausalBuffer()
    assert hold.add(2, "effect")
    assert hold.add(1, "cause")
    assert hold.release_up_to(2) == ["cause", "effect"]


def test_changes_after_the_completed_offset_stay_buffered():
    hold: CausalBuffer[str] = CausalBuffer()
    hold.add(5, "five")
    assert hold.release_up_to(4) == []
    assert hold.release_up_to(9) == ["five"]
    assert hold.release_up_to(9) == []


def test_a_full_buffer_is_reported():
    hold: CausalBuffer[int] = CausalBuffer(max_changes=2)
    assert [hold.add(offset, offset) for offset in (1, 2, 3)] == [True, True, False]
    assert len(hold) == 0


BATCHES = st.lists(st.lists(st.integers(1, 4), max_size=6), max_size=6)
"""Batches of changes, each in one of four partitions."""


@given(BATCHES, st.integers(1, 3), st.randoms(use_true_random=False), st.booleans())
def test_changes_are_released_in_journal_order_whatever_the_pace(batches, shares, rng, retried):
    """Partitions of different shares arrive interleaved at will; a batch may come twice, from its beginning."""
    desk, hold, offset = ChangeReceiver(), CausalBuffer[int](), 0
    handed: list[int] = []
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
                    line.append(Complete(offset=offset, share=share, shares=shares, index_version=1))
            while any(frames):
                line = rng.choice([line for line in frames if line])
                for output in desk.receive(line.pop(0)):
                    if isinstance(output, BatchCompleted):
                        handed += hold.release_up_to(output.offset)
                    elif isinstance(output, MatchedChange):
                        hold.add(output.change.offset, output.change.offset)
    assert handed == list(range(1, offset + 1))
