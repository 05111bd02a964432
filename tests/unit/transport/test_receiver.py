"""The receiver outputs each change once and in order, whatever is repeated."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vedette.transport.ingest_messages import Complete, Deliver, DeliveredChange, PartitionStatus, Status
from vedette.transport.receiver import (
    BatchCompleted,
    ChangeReceiver,
    MatchedChange,
    PartitionReset,
    UnfilteredChange,
)

OLD, NEW = 1, 2
"""A subscription from the beginning, and one that comes with a later batch."""


def change(offset: int, partition: int, seq: int, numbers: list[int], **more: Any) -> DeliveredChange:
    values: dict[str, Any] = {
        "tenant": "t", "collection": "c", "key": "k", "op": "create", "partition": partition, "epoch": 1, "seq": seq,
        "offset": offset, "time_ms": 0, "enter": numbers,
    }  # fmt: skip
    return DeliveredChange(**(values | more))


def batches(sizes: list[int], joins: int, boundary: int) -> list[list[list[DeliveredChange]]]:
    """Batches of two shares; partition p belongs to share p modulo 2. NEW is there from batch `joins` on."""
    found, offset, seqs = [], 0, dict.fromkeys(range(4), 0)
    history: list[tuple[int, int, int]] = []
    for number, size in enumerate(sizes):
        shares: list[list[DeliveredChange]] = [[], []]
        if number == joins:
            for past in history:
                if past[0] > boundary:
                    shares[past[1] % 2].append(change(*past, [NEW], is_backfill=True))
        for _ in range(size):
            offset += 1
            partition = (offset * 7) % 4
            seqs[partition] += 1
            history.append((offset, partition, seqs[partition]))
            subscription = [OLD, NEW] if number >= joins and offset > boundary else [OLD]
            shares[partition % 2].append(change(*history[-1], subscription))
        found.append(shares)
    return found


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=5),
    st.integers(0, 4),
    st.integers(0, 10),
    st.lists(
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=3), max_size=5
    ),
)
def test_repeated_batches_are_deduplicated(
    sizes: list[int], joins: int, boundary: int, failures: list[list[tuple[int, int, bool]]]
):
    """A failure: each share got so far, and perhaps the first was complete."""
    receiver, delivered = ChangeReceiver(), []
    offset = 0
    for number, shares in enumerate(batches(sizes, joins, boundary)):
        offset += sizes[number]
        for first, second, completed in failures[number] if number < len(failures) else []:
            for share, upto in ((0, first), (1, second)):
                delivered += receiver.receive(Deliver(number=1, changes=shares[share][:upto]))
            if completed and first >= len(shares[0]):
                delivered += receiver.receive(
                    Complete(offset=offset, share=0, shares=2, index_version=number)
                )
        for share in (0, 1):
            delivered += receiver.receive(Deliver(number=1, changes=shares[share]))
            delivered += receiver.receive(
                Complete(offset=offset, share=share, shares=2, index_version=number)
            )
    received: dict[int, list[tuple[int, int]]] = {OLD: [], NEW: []}
    for output in delivered:
        if isinstance(output, MatchedChange):
            place = (output.change.partition, output.change.seq)
            for number in output.enter:
                past = [seq for partition, seq in received[number] if partition == place[0]]
                if place[1] > max(past, default=0):  # the rule of CollectionStream.hears
                    received[number].append(place)
                else:
                    assert output.change.is_backfill, "a plain change is handed on once"
    total = sum(sizes)
    assert len(received[OLD]) == len(set(received[OLD])) == total
    expected = max(0, total - boundary) if joins < len(sizes) else 0
    assert len(received[NEW]) == len(set(received[NEW])) == expected
    for places in received.values():
        for partition in range(4):
            seqs = [seq for p, seq in places if p == partition]
            assert seqs == sorted(seqs)
    reached = [output.offset for output in delivered if isinstance(output, BatchCompleted)]
    assert reached == sorted(reached)
    assert not total or reached[-1] == total


def test_a_new_epoch_is_a_resync_once():
    receiver = ChangeReceiver()
    receiver.receive(Deliver(number=1, changes=[change(1, 1, 1, [OLD])]))
    lost = Status(partitions=[PartitionStatus(partition=1, epoch=2, state="live", reason="gone")])
    assert receiver.receive(lost)[0] == PartitionReset(1, 2, "gone")
    assert not any(isinstance(output, PartitionReset) for output in receiver.receive(lost))
    late = receiver.receive(Deliver(number=2, changes=[change(2, 1, 2, [OLD])]))
    assert late == [], "of before the loss"
    (fresh,) = receiver.receive(Deliver(number=3, changes=[change(3, 1, 1, [OLD], epoch=2)]))
    assert isinstance(fresh, MatchedChange)
    unseen = receiver.receive(Deliver(number=4, changes=[change(4, 1, 1, [OLD], epoch=3)]))
    assert [type(output) for output in unseen] == [PartitionReset, MatchedChange]


def test_an_unfiltered_change_is_output_once():
    receiver = ChangeReceiver()
    frame = Deliver(number=1, changes=[change(1, 1, 1, [], unfiltered=True)])
    assert [type(output) for output in receiver.receive(frame)] == [UnfilteredChange]
    assert receiver.receive(frame) == []
