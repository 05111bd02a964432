"""What pipeline and gateways say to each other: the ingest link, version 1. Needs neither Spark nor numpy.

A frame is four bytes of length (big-endian, of what follows), one byte of version, and MessagePack of one of the
records below, a map whose `type` names the record. The pipeline connects; the gateway answers.

    pipeline ▸ gateway    hello      first: the secret of the data directory, and who connects
                          deliver    changes for subscriptions of this gateway; `number` is to be acknowledged
                          complete   a share of all partitions is told up to `offset`; the driver says so again
                                     of all of them, now and then, in case that it did not arrive
                          status     partitions that are stale or live again
    gateway ▸ pipeline    welcome    the link is open
                          accepted   `number` and all before it are in the gateway's hands
                          refused    the link is closed, and why

Changes of one partition come in the order of seq, to each subscription. After a failure they may come again, and those
marked `again` (for subscriptions that came later) are news to some only: (partition, epoch, seq) says so, held against
what a subscription has heard of the partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from vedette.errors import PipelineError

__all__ = [
    "MAX_FRAME_BYTES",
    "VERSION",
    "Accepted",
    "Complete",
    "Deliver",
    "DeliveredChange",
    "Frame",
    "FrameReader",
    "Hello",
    "PartitionStatus",
    "Refused",
    "Status",
    "Welcome",
    "WindowResult",
    "encode_frame",
]

VERSION = 1
MAX_FRAME_BYTES = 64 * 1024 * 1024


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    secret: str
    sender: str
    """For logs: which worker of which pipeline."""


class DeliveredChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change, once for all subscriptions of a gateway that it concerns."""

    tenant: str
    collection: str
    key: str
    op: str
    """create, update or delete."""
    partition: int
    epoch: int
    seq: int
    offset: int
    """In the journal, over all partitions; the `lsn` of the wire."""
    time_ms: int
    """When the source says it happened."""
    before: bytes | None = None
    after: bytes | None = None
    """Images (vedette.sources.images)."""
    enter: list[int] = []
    """Numbers of subscriptions that the document now matches and did not before."""
    update: list[int] = []
    """Matches as before."""
    leave: list[int] = []
    """Matched before and no more: it was changed, or deleted."""
    again: bool = False
    """For subscriptions that came after this change was delivered to others: repeats are known by subscription."""
    unfiltered: bool = False
    """The index was unsure: the gateway holds the change against its own subscriptions of the collection."""


class WindowResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the end of a window tells one subscription."""

    subscription: int
    position: int
    """Counts from 1, for each subscription; a repeat has the same."""
    payload: bytes
    """An image of `{type, window_start, window_end}` with `match`, `prev`, `matches` or `events`."""


class Deliver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="deliver"):
    number: int
    changes: list[DeliveredChange] = []
    windows: list[WindowResult] = []


class Complete(msgspec.Struct, frozen=True, kw_only=True, tag="complete"):
    """Everything up to `offset` is told of the partitions whose id is `share` modulo `shares`."""

    offset: int
    share: int
    shares: int
    version: int
    """The version of the registry that was used: subscriptions of later ones are told later."""


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    epoch: int
    state: str
    """live, stale or catching-up. Subscribers of a partition that comes out of stale with a new epoch must resync."""
    reason: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    partitions: list[PartitionStatus]


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    gateway: str


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    number: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    reason: str


Frame: TypeAlias = Hello | Deliver | Complete | Status | Welcome | Accepted | Refused
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame) -> bytes:
    body = _encoder.encode(frame)
    return (len(body) + 1).to_bytes(4, "big") + bytes((VERSION,)) + body


class FrameReader:
    """Bytes in, frames out. No I/O."""

    def __init__(self, most_bytes: int = MAX_FRAME_BYTES) -> None:
        """`max_bytes`: what a frame may have until `unbound`, when the other end has shown who it is."""
        self._buffer = bytearray()
        self._max_bytes = most_bytes

    def lift_size_limit(self) -> None:
        self._max_bytes = MAX_FRAME_BYTES

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; PipelineError E6302 for what is none of this version."""
        self._buffer += data
        while len(self._buffer) >= 4:
            length = int.from_bytes(self._buffer[:4], "big")
            if not 1 <= length <= self._max_bytes:
                raise PipelineError("E6302", f"a frame of {length} bytes; {self._max_bytes} is the most")
            if len(self._buffer) < 4 + length:
                return
            version, body = self._buffer[4], bytes(self._buffer[5 : 4 + length])
            del self._buffer[: 4 + length]
            yield _decode_frame(version, body)


def _decode_frame(version: int, body: bytes) -> Frame:
    if version != VERSION:
        raise PipelineError(
            "E6302", f"a frame of version {version}; this is {VERSION}: run one release everywhere"
        )
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as problem:
        raise PipelineError("E6302", f"the frame cannot be read: {problem}") from None
