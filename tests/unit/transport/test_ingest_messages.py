"""Frames of the ingest link: any split of the bytes gives the same frames; invalid bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import PipelineError
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
def test_any_split_of_the_bytes_gives_the_same_frames(frames: list[object], size: int):
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
def test_invalid_bytes_are_refused(data: bytes):
    with pytest.raises(PipelineError) as caught:
        list(FrameReader().feed(data))
    assert caught.value.code == "E6302"
