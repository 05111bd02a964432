"""The ingest frames, the ring, and how ranges of the journal become tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import PipelineError
from vedette.pipeline.datasource import SMALL_RANGE, offset_of, plan_ranges
from vedette.pipeline.ingest_frames import (
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
from vedette.pipeline.partition_states import news
from vedette.pipeline.ring import Ring
from vedette.sources.records import Partition

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
    full, less = Ring(["a", "b", "c", "d"]), Ring(["a", "b", "d"])
    moved = full.moved(less, KEYS)
    assert {before for before, _ in moved.values()} == {"c"}
    assert {key for key in KEYS if full.owner(key) == "c"} == set(moved)
    shares = [sum(full.owner(key) == member for key in KEYS) for member in full.members]
    assert min(shares) > len(KEYS) / 4 / 2


def test_who_comes_next_would_be_the_owner():
    ring = Ring(["a", "b", "c", "d"])
    for key in KEYS[:50]:
        first, second, *rest = ring.owners(key, 4)
        assert len({first, second, *rest}) == 4
        assert Ring(member for member in ring.members if member != first).owner(key) == second
    assert Ring().owner("x") is None
    assert len(Ring(["a"]).owners("x", 3)) == 1


# --- ranges -------------------------------------------------------------------------------------------------------


def test_offsets_are_equal_as_text():
    assert json.dumps(offset_of(1, 2)) == '{"offset": 1, "version": 2}'


def test_nothing_is_planned_for_nothing():
    assert plan_ranges(offset_of(5, 1), offset_of(5, 1), 4, None) == []


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 8), st.none() | st.integers(0, 10_000))
def test_ranges_cover_what_they_should(after: int, more: int, shares: int, lowest: int | None):
    start, end = offset_of(after, 1), offset_of(after + more, 2)
    ranges = plan_ranges(start, end, shares, lowest)
    count = 1 if more < SMALL_RANGE else shares
    assert [(r.share, r.shares) for r in ranges] == [(n, count) for n in range(count)]
    assert {(r.after, r.upto, r.version) for r in ranges} == {(after, after + more, 2)}
    again = lowest if lowest is not None and lowest < after else None
    assert {(r.again_after, r.newer_than) for r in ranges} == {(again, 1 if again is not None else -1)}


def test_a_gateway_is_told_what_it_does_not_know():
    live = Partition(id=1, source="s", number=0, epoch=1, seq=5)
    told: dict[int, PartitionStatus] = {}
    (first,) = news(told, [live])
    assert first.state == "live"
    told[1] = first
    assert news(told, [live]) == []
    stale = Partition(id=1, source="s", number=0, epoch=1, seq=9, state="stale", reason="gone")
    assert [status.state for status in news(told, [stale])] == ["stale"]
