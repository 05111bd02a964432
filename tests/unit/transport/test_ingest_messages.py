"""Frames of the ingest link: any split of the bytes gives the same frames; invalid bytes are refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import PipelineError
from vedette.transport.ingest_messages import (
    Accepted,
    Complete,
    Deliver,
    DeliveredChange,
    Frame,
    FrameReader,
    Hello,
    PartitionStatus,
    Refused,
    Status,
    Welcome,
    WindowResult,
    encode_frame,
)

CHANGE = DeliveredChange(
    tenant="t", collection="c", key="k", op="update", partition=1, epoch=2, seq=3, offset=4, time_ms=5,
    before=b"{}", after=b"{}", enter=[1], leave=[2], is_backfill=True,
)  # fmt: skip
FRAMES: list[Frame] = [
    Hello(secret="s", sender="w"),
    Deliver(number=1, changes=[CHANGE]),
    Complete(offset=9, share=0, shares=2, index_version=7),
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
    [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x09\x80", b"\x00\x00\x00\x02\x02\x80"],
    ids=["empty", "too long", "another version", "no record"],
)
def test_invalid_bytes_are_refused(data: bytes):
    with pytest.raises(PipelineError) as caught:
        list(FrameReader().feed(data))
    assert caught.value.code == "E6302"


DELIVERY = (
    b"\x00\x00\x00\xd1\x02\x84\xa4type\xa7deliver\xa6number\x03\xa7changes\x91\xde\x00\x0e\xa6"
    b"tenant\xa1t\xaacollection\xa1c\xa3key\xa1k\xa2op\xa6update\xa9pa"
    b"rtition\x01\xa5epoch\x02\xa3seq\x03\xa6offset\x04\xa7time_ms\x05\xa6be"
    b"fore\xc4\x02{}\xa5after\xc4\x02{}\xa5enter\x91\x01\xa5leave\x91\x02\xabis_ba"
    b"ckfill\xc3\xa7windows\x91\x83\xacsubscription\x07\xa8position"
    b"\x01\xa7payload\xc4\x02{}"
)


def test_the_bytes_of_a_delivery():
    """A change of these bytes needs a new VERSION."""
    window = WindowResult(subscription=7, position=1, payload=b"{}")
    assert encode_frame(Deliver(number=3, changes=[CHANGE], windows=[window])) == DELIVERY


def test_the_names_of_every_message():
    names = {type(frame).__name__: list(msgspec.msgpack.decode(encode_frame(frame)[5:])) for frame in FRAMES}
    assert names == {
        "Hello": ["type", "secret", "sender"],
        "Deliver": ["type", "number", "changes"],
        "Complete": ["type", "offset", "share", "shares", "index_version"],
        "Status": ["type", "partitions"],
        "Welcome": ["type", "gateway"],
        "Accepted": ["type", "number"],
        "Refused": ["type", "reason"],
    }
