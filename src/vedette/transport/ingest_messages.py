"""Messages between pipeline and gateways: the ingest link, version 2. Needs neither Spark nor numpy.

A frame has four bytes of length (big-endian, of what follows), one byte of version, and a MessagePack map whose `type`
names the record. The pipeline connects; the gateway answers.

    pipeline ▸ gateway    hello      first frame: the secret of the data directory and the sender's name
                          deliver    changes for subscriptions of this gateway; `number` is acknowledged
                          complete   a share of the partitions is delivered up to `offset`; the driver repeats it
                                     for all shares from time to time, in case a frame was lost
                          status     partitions that became stale or live
    gateway ▸ pipeline    welcome    the link is open
                          accepted   the gateway has `number` and all earlier deliveries
                          refused    the link is closed, with the reason

Changes of one partition reach each subscription in seq order. After a failure they may be repeated. Changes marked
`is_backfill`, for subscriptions that were added later, are new to some subscriptions only. A subscription detects
duplicates by comparing (partition, epoch, seq) with its position in the partition.
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

VERSION = 2
"""2: explicit names `is_backfill` and `index_version`."""
MAX_FRAME_BYTES = 64 * 1024 * 1024


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    secret: str
    sender: str
    """Worker and pipeline, for logs."""


class DeliveredChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change, sent once for all matching subscriptions of a gateway."""

    tenant: str
    collection: str
    key: str
    op: str
    """create, update or delete."""
    partition: int
    epoch: int
    seq: int
    offset: int
    """Offset in the journal, across all partitions; `lsn` in client messages."""
    time_ms: int
    """Time of the change according to the source."""
    before: bytes | None = None
    after: bytes | None = None
    """Encoded images (vedette.sources.images)."""
    enter: list[int] = []
    """Ids of subscriptions that match now and did not before."""
    update: list[int] = []
    """Ids of subscriptions that match before and after."""
    leave: list[int] = []
    """Ids of subscriptions that matched before and no longer do, because of an update or deletion."""
    is_backfill: bool = False
    """True for subscriptions added after the change was first delivered. Duplicates are detected per subscription."""
    unfiltered: bool = False
    """True if the index was not reliable: the gateway evaluates its own subscriptions of the collection."""


class WindowResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a window for one subscription."""

    subscription: int
    position: int
    """Starts at 1 for each subscription; a duplicate has the same position."""
    payload: bytes
    """Image of `{type, window_start, window_end}` with `match`, `prev`, `matches` or `events`."""


class Deliver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="deliver"):
    number: int
    changes: list[DeliveredChange] = []
    windows: list[WindowResult] = []


class Complete(msgspec.Struct, frozen=True, kw_only=True, tag="complete"):
    """Everything up to `offset` is delivered for the partitions with id modulo `shares` equal to `share`."""

    offset: int
    share: int
    shares: int
    index_version: int
    """Version of the subscription index; subscriptions of later versions are served by a later batch."""


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    epoch: int
    state: str
    """live, stale or catching-up. If a partition leaves stale with a new epoch, its subscribers must resync."""
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

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        """`max_bytes`: frame limit until `lift_size_limit`, which is called once the peer has authenticated."""
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def lift_size_limit(self) -> None:
        self._max_bytes = MAX_FRAME_BYTES

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are now complete. Raise PipelineError E6302 for invalid frames."""
        self._buffer += data
        while len(self._buffer) >= 4:
            length = int.from_bytes(self._buffer[:4], "big")
            if not 1 <= length <= self._max_bytes:
                raise PipelineError(
                    "E6302", f"frame of {length} bytes exceeds the limit of {self._max_bytes}"
                )
            if len(self._buffer) < 4 + length:
                return
            version, body = self._buffer[4], bytes(self._buffer[5 : 4 + length])
            del self._buffer[: 4 + length]
            yield _decode_frame(version, body)


def _decode_frame(version: int, body: bytes) -> Frame:
    if version != VERSION:
        raise PipelineError(
            "E6302",
            f"frame version {version} is not supported (expected {VERSION}): run the same release everywhere",
        )
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as problem:
        raise PipelineError("E6302", f"the frame cannot be decoded: {problem}") from None
