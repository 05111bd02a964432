"""The ingest frames, the ring, and how ranges of the journal become tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from vedette.control.partition_status import changed_statuses
from vedette.errors import PipelineError
from vedette.pipeline.datasource import SINGLE_TASK_ROWS, JournalStream, offset_of, plan_ranges
from vedette.pipeline.schema import PROGRESS
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Partition, Source, SourceEvent
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.transport.hash_ring import HashRing
from vedette.transport.ingest_messages import (
    Accepted,
    Complete,
    Deliver,
    DeliveredChange,
    FrameReader,
    Hello,
    PartitionStatus,
    Refused,
    Status,
    Welcome,
    encode_frame,
)

CHANGE = DeliveredChange(
    tenant="t", collection="c", key="k", op="update", partition=1, epoch=2, seq=3, offset=4, time_ms=5,
    before=b"{}", after=b"{}", enter=[1], leave=[2], again=True,
)  # fmt: skip
FRAMES = [
    Hello(secret="s", sender="w"),
    Deliver(number=1, changes=[CHANGE]),
    Complete(offset=9, share=0, shares=2, version=7),
    Status(partitions=[PartitionStatus(partition=1, epoch=2, state="stale", reason="x")]),
    Welcome(gateway="g"),
    Accepted(number=1),
    Refused(reason="no"),
]


@given(st.lists(st.sampled_from(FRAMES), max_size=5), st.integers(1, 40))
def test_frames_survive_any_cut(frames: list[object], size: int):
    data = b"".join(encode_frame(frame) for frame in frames)  # type: ignore[arg-type]
    reader = FrameReader()
    found = [
        frame for start in range(0, len(data), size) for frame in reader.feed(data[start : start + size])
    ]
    assert found == frames


@pytest.mark.parametrize(
    "data",
    [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x09\x80", b"\x00\x00\x00\x02\x01\x80"],
    ids=["empty", "too long", "another version", "no record"],
)
def test_what_is_no_frame_is_refused(data: bytes):
    with pytest.raises(PipelineError) as caught:
        list(FrameReader().feed(data))
    assert caught.value.code == "E6302"


# --- the ring -----------------------------------------------------------------------------------------------------

KEYS = [f"key {n}" for n in range(300)]


def test_only_the_keys_of_who_leaves_move():
    full, less = HashRing(["a", "b", "c", "d"]), HashRing(["a", "b", "d"])
    assert {key for key in KEYS if full.owner(key) == "c"} == {
        key for key in KEYS if full.owner(key) != less.owner(key)
    }
    shares = [sum(full.owner(key) == member for key in KEYS) for member in full.members]
    assert min(shares) > len(KEYS) / 4 / 2


def test_who_comes_next_would_be_the_owner():
    ring = HashRing(["a", "b", "c", "d"])
    for key in KEYS[:50]:
        first, second, *rest = ring.owners(key, 4)
        assert len({first, second, *rest}) == 4
        assert HashRing(member for member in ring.members if member != first).owner(key) == second
    assert HashRing().owner("x") is None
    assert len(HashRing(["a"]).owners("x", 3)) == 1


# --- ranges -------------------------------------------------------------------------------------------------------


def test_offsets_are_equal_as_text():
    assert json.dumps(offset_of(1, 2)) == '{"offset": 1, "version": 2}'
    modes = {9: "shedding", 3: "degraded"}
    one, other = offset_of(1, 2, modes), offset_of(1, 2, dict(reversed(modes.items())))
    assert json.dumps(one) == json.dumps(other)
    (range_,) = plan_ranges(offset_of(0, 2), one, 1, None)
    assert (range_.shedding, range_.skipped) == (frozenset({9}), frozenset({3}))


def test_nothing_is_planned_for_nothing():
    assert plan_ranges(offset_of(5, 1), offset_of(5, 1), 4, None) == []


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 8), st.none() | st.integers(0, 10_000))
def test_ranges_cover_what_they_should(after: int, more: int, shares: int, lowest: int | None):
    start, end = offset_of(after, 1), offset_of(after + more, 2)
    ranges = plan_ranges(start, end, shares, lowest)
    count = 1 if more < SINGLE_TASK_ROWS else shares
    assert [(r.share, r.shares) for r in ranges] == [(n, count) for n in range(count)]
    assert {(r.after, r.upto, r.version) for r in ranges} == {(after, after + more, 2)}
    again = lowest if lowest is not None and lowest < after else None
    assert {(r.again_after, r.newer_than) for r in ranges} == {(again, 1 if again is not None else -1)}


def test_a_gateway_is_told_what_it_does_not_know():
    live = Partition(id=1, source="s", number=0, epoch=1, seq=5)
    told: dict[int, PartitionStatus] = {}
    (first,) = changed_statuses(told, [live])
    assert first.state == "live"
    told[1] = first
    assert changed_statuses(told, [live]) == []
    stale = Partition(id=1, source="s", number=0, epoch=1, seq=9, state="stale", reason="gone")
    assert [status.state for status in changed_statuses(told, [stale])] == ["stale"]


def test_a_degraded_partition_is_read_and_not_told(tmp_path: Path):
    journal = open_journal(tmp_path)
    journal.add_source(Source(name="shop", kind="mongodb", address="", partitions=2))
    events = [
        SourceEvent(event_id=f"e{n}", collection="c", key=f"k{n}", after=b'{"n":1}', created=True, time_ms=0)
        for n in range(40)
    ]
    last = journal.append("shop", events, None).offset
    skipped, told = (partition.id for partition in journal.partitions())
    registry = SubscriptionRegistry(tmp_path)
    registry.set_mode(skipped, "degraded")
    options = {
        "journal": journal.address,
        "index": str(tmp_path / "index"),
        "registry": registry.address,
        "start": "0",
    }
    stream = JournalStream(options)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {"modes": {str(skipped): "degraded"}, "offset": last, "version": 0}
    registry.set_mode(skipped, "normal")  # the batch has its modes: when it runs again it reads the same
    for _ in range(2):
        (range_,) = stream.partitions(start, end)
        *batches, mark = stream.read(range_)
        seen = [partition for batch in batches for partition in batch["partition"].to_pylist()]
        assert set(seen) == {told}
        assert mark["epoch"].to_pylist() == [40 - len(seen)]
    assert "modes" not in stream.latestOffset(start, ReadAllAvailable())
    registry.close()
    journal.close()


def test_now_and_then_there_is_a_batch_without_rows(tmp_path: Path):
    """Else Spark would end its Python workers, and the next change would wait for new ones."""
    journal = open_journal(tmp_path)
    journal.add_source(Source(name="shop", kind="graph", address="a", tenant="default"))
    event = SourceEvent(event_id="e", collection="c", key="k", after=b'{"n":1}', created=True, time_ms=0)
    options = {
        "journal": journal.address,
        "index": str(tmp_path / "index"),
        "start": "0",
        "patience": "0.01",
    }
    resting, warm = JournalStream(options), JournalStream({**options, "warm": "0"})
    start = resting.initialOffset()
    assert resting.latestOffset(start, ReadAllAvailable()) == start, "not yet"
    for beat in (1, 2):
        end = warm.latestOffset(start, ReadAllAvailable())
        assert end == {**resting.initialOffset(), "beat": beat}
        (range_,) = warm.partitions(start, end)
        (mark,) = warm.read(range_)
        assert mark["op"].to_pylist() == [PROGRESS]
        assert mark["offset"].to_pylist() == [0]
        start = end
    last = journal.append("shop", [event], None).offset
    assert warm.latestOffset(start, ReadAllAvailable()) == offset_of(last, 0)
    journal.close()
