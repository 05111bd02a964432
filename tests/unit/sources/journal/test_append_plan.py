"""The plan of an append: duplicates, partitions, sequence numbers and before images."""

from __future__ import annotations

from vedette.sources.journal.append_plan import AppendPlan, keys_by_collection, partition_of, plan_append
from vedette.sources.records import Partition, Source, SourceEvent

SHOP = Source(name="shop", kind="mongodb", address="mongodb://host", partitions=2)
PARTITIONS = [
    Partition(id=10 + number, source="shop", number=number, epoch=7, seq=100 * number) for number in range(2)
]


def event(event_id: str, key: str, after: bytes | None, *, created: bool = False) -> SourceEvent:
    return SourceEvent(
        event_id=event_id, collection="shop::orders", key=key, after=after, created=created, time_ms=5
    )


def plan(*events: SourceEvent, known: frozenset[str] = frozenset()) -> AppendPlan:
    return plan_append(SHOP, PARTITIONS, events, known, {("shop::orders", "old"): b"{}"}, 99)


def test_partition_of_a_document_is_pinned():
    """Stored partitions depend on the hash."""
    keys = ["a", "b", "c", "d", "ä"]
    assert [partition_of("default", "shop::orders", key, 256) for key in keys] == [80, 63, 229, 215, 219]


def test_known_and_repeated_events_are_dropped():
    result = plan(event("1", "a", b"1"), event("1", "a", b"1"), event("2", "a", b"2"), known=frozenset({"2"}))
    assert [row.event_id for row in result.rows] == ["1"]
    assert result.duplicates == 2


def test_sequence_numbers_continue_per_partition():
    result = plan(event("1", "a", b"1"), event("2", "a", b"2"))
    first, second = result.rows
    assert (first.partition, first.epoch) == (second.partition, 7)
    assert second.seq == first.seq + 1
    assert result.seqs == {first.partition: second.seq}


def test_operation_follows_from_the_images():
    result = plan(event("1", "new", b"1", created=True), event("2", "new", None), event("3", "old", b"3"))
    assert [row.op for row in result.rows] == ["create", "delete", "update"]
    assert [row.before for row in result.rows] == [None, b"1", b"{}"]
    assert result.images == {("shop::orders", "new"): None, ("shop::orders", "old"): b"3"}


def test_deletion_of_an_unknown_document_is_dropped():
    assert plan(event("1", "unknown", None)).rows == ()


def test_before_image_of_an_unknown_document_is_unknown():
    (row,) = plan(event("1", "unknown", b"1")).rows
    assert (row.before, row.before_known) == (None, False)


def test_keys_are_grouped_by_collection():
    assert keys_by_collection([event("1", "a", b""), event("2", "b", b"")]) == {"shop::orders": {"a", "b"}}
