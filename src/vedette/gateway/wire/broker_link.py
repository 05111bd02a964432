"""Records between gateways and the broker: the same in process and over a Unix socket, with their encoding.

Between processes each batch is one frame: 4 bytes of length, big-endian, then a MessagePack array of records. The first
frame of a worker is a `Hello` with the version of this format and the secret of the data directory. A broker with
another version replies `LinkRejected`. `conn` identifies a connection within its link.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from vedette.gateway.wire.counters import Counters
from vedette.transport.framing import add_length

__all__ = [
    "CONGESTED_BYTES",
    "LINK_VERSION",
    "MAX_FRAME_BYTES",
    "AckEvents",
    "BrokerRecord",
    "CloseConnection",
    "ConnectionOpened",
    "Drain",
    "ExecuteRequest",
    "GatewayRequest",
    "GatewayStats",
    "Hello",
    "LinkRejected",
    "ManageRequest",
    "Notice",
    "OpenConnection",
    "Port",
    "ReplayRequest",
    "ReplayedEvents",
    "Reply",
    "RequestFailed",
    "ResumeRequest",
    "ResyncRequired",
    "SettleDelivery",
    "StreamEnded",
    "StreamEvent",
    "SubscribeRequest",
    "Subscribed",
    "UnsubscribeRequest",
    "Unsubscribed",
    "UpdateClaims",
    "Welcome",
    "busy_reply",
    "decode_batch",
    "encode_batch",
    "encode_frames",
    "is_control",
    "payload_bytes",
    "request_id",
]

LINK_VERSION = 4
MAX_BATCH_FRAME_BYTES = 16 * 1024 * 1024
"""Size limit of a frame with more than one record."""
MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Size limit of any frame."""
_log = logging.getLogger(__name__)


class _Record(msgspec.Struct, kw_only=True, array_like=True):
    """A record of the link, encoded as an array: its tag, then its fields in definition order."""


# --- from a gateway to the broker -------------------------------------------------------------------------------


class Hello(_Record, tag="hello"):
    version: int
    secret: bytes
    name: str


class OpenConnection(_Record, tag="open_connection"):
    """A connection has authenticated."""

    conn: int
    id: str | None
    tenant: str
    actor: str | None
    """Node id of the actor; None in the system context."""
    system: bool
    claims: dict[str, Any] = {}
    checksum: bool = False
    local: bool = False
    """True if the client uses the data directory's Unix socket."""


class UpdateClaims(_Record, tag="update_claims"):
    """A connection has presented a token with different claims."""

    conn: int
    claims: dict[str, Any]


class CloseConnection(_Record, tag="close_connection"):
    """A connection was closed."""

    conn: int
    clean: bool
    """True if client or server closed it on purpose. Held deliveries are then requeued without an attempt."""
    may_resume: bool
    """True if the client may reconnect and resume. Its streams are then kept for a while."""


class ExecuteRequest(_Record, tag="execute_request"):
    """Execute one text: `execute`, `run` or `define`."""

    conn: int
    id: str | None
    kind: str
    text: str
    params: dict[str, Any] = {}


class SubscribeRequest(_Record, tag="subscribe_request"):
    conn: int
    sub_id: str
    payload: Any
    """The payload of the client's `subscribe` message, with the field names of the protocol."""


class UnsubscribeRequest(_Record, tag="unsubscribe_request"):
    """End a subscription."""

    conn: int
    id: str | None
    sub_id: str


class ResumeRequest(_Record, tag="resume_request"):
    """Resume a subscription with a token."""

    conn: int
    id: str | None
    sub_id: str
    token: str
    last_seq: dict[int, int] | None


class ReplayRequest(_Record, tag="replay_request"):
    """Request the events after `seq` for a lagging subscription."""

    conn: int
    sub_id: str
    seq: int


class AckEvents(_Record, tag="ack_events"):
    """The client has received everything up to `seq`. Without `sub_id`: on all of its subscriptions."""

    conn: int
    sub_id: str | None
    seq: int


class SettleDelivery(_Record, tag="settle_delivery"):
    """ACK, NACK or EXTEND one delivery."""

    conn: int
    id: str | None
    operation: str
    delivery: str
    retry: bool = True
    milliseconds: int | None = None
    cause: str | None = None
    release: bool = False


class ManageRequest(_Record, tag="manage_request"):
    """Pause, resume, cancel, alter or pull an exclusive watch."""

    conn: int
    id: str | None
    sub_id: str
    operation: str
    options: str | None = None
    limit: int | None = None


class GatewayStats(_Record, tag="gateway_stats"):
    """Statistics of a gateway, sent once a second."""

    connections: int
    subscriptions: int
    outbox_bytes: int
    outbox_limit_bytes: int
    load: int
    counters: Counters


GatewayRequest = (
    OpenConnection
    | UpdateClaims
    | CloseConnection
    | ExecuteRequest
    | SubscribeRequest
    | UnsubscribeRequest
    | ResumeRequest
    | ReplayRequest
    | AckEvents
    | SettleDelivery
    | ManageRequest
)

# --- from the broker to a gateway -------------------------------------------------------------------------------


class Welcome(_Record, tag="welcome"):
    version: int


class LinkRejected(_Record, tag="link_rejected"):
    reason: str


class Drain(_Record, tag="drain"):
    """Ask the gateway to send its clients to other servers and to stop. `seconds` is sent but not read."""

    seconds: float


class ConnectionOpened(_Record, tag="connection_opened"):
    conn: int
    id: str | None


class RequestFailed(_Record, tag="request_failed"):
    """A request was rejected. `payload` is the payload of the `error` message."""

    conn: int
    id: str | None
    payload: dict[str, Any]
    close: int = 0
    """Code with which to close the connection; 0 keeps it open."""


class Reply(_Record, tag="reply"):
    """Reply to a request, encoded."""

    conn: int
    data: bytes


class Subscribed(_Record, tag="subscribed"):
    """A subscription was created. Send `messages`, then the events of `stream` after `seq`."""

    conn: int
    sub_id: str
    stream: int
    seq: int
    messages: list[bytes]
    event_prefix: bytes
    """Bytes of every event of this stream up to the receiver's name."""
    credit_based: bool = False
    """True if credit bounds the events; such a subscription has no replay."""
    replay_follows: bool = False
    """True if a `ReplayedEvents` with the events after `seq` follows, as in a resume."""


class Notice(_Record, tag="notice"):
    """An encoded message that answers no request."""

    conn: int
    data: bytes


class Unsubscribed(_Record, tag="unsubscribed"):
    conn: int
    sub_id: str
    data: bytes | None


class StreamEvent(_Record, tag="stream_event"):
    """An event for all local subscribers of a stream."""

    stream: int
    seq: int
    suffix: bytes
    committed_at: float
    """Monotonic time of the commit. All processes of a machine share this clock."""


class ReplayedEvents(_Record, tag="replayed_events"):
    """Events that a subscription missed. `more` is True if further events remain."""

    conn: int
    sub_id: str
    events: list[tuple[int, bytes]]
    more: bool


class ResyncRequired(_Record, tag="resync_required"):
    """A subscription cannot catch up; its client must resync."""

    conn: int
    sub_id: str
    reason: str


class StreamEnded(_Record, tag="stream_ended"):
    """A stream ended because its watch was cancelled or failed."""

    stream: int
    payload: dict[str, Any]


BrokerRecord = (
    Welcome
    | LinkRejected
    | Drain
    | ConnectionOpened
    | RequestFailed
    | Reply
    | Subscribed
    | Notice
    | Unsubscribed
    | StreamEvent
    | ReplayedEvents
    | ResyncRequired
    | StreamEnded
)

CONGESTED_BYTES = 33_554_432
"""Unsent bytes above which a gateway counts as congested."""


class Port(Protocol):
    """One gateway. `send` is called on the engine thread and does not block."""

    def send(self, records: list[BrokerRecord]) -> None:
        """Send records in order."""

    @property
    def congested(self) -> bool:
        """True if many bytes are unsent. Large replies then wait; other records are still sent."""
        ...

    def __hash__(self) -> int: ...


_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(list[Hello | GatewayStats | GatewayRequest])
_records = msgspec.msgpack.Decoder(list[BrokerRecord])


def is_control(record: Any) -> bool:
    """True for records that free resources. They are accepted even if the receiver's queue is full."""
    return isinstance(record, CloseConnection | UpdateClaims)


def request_id(record: Any) -> str | None:
    """Return the id of the client message that a request comes from; None if it has none."""
    if isinstance(record, SubscribeRequest):
        return record.sub_id
    id: str | None = getattr(record, "id", None)
    return id


def busy_reply(record: Any) -> RequestFailed | ResyncRequired:
    """Return the reply to a request that the engine has no room for. A replay request becomes resync-required."""
    if isinstance(record, ReplayRequest):
        return ResyncRequired(conn=record.conn, sub_id=record.sub_id, reason="overflow")
    payload = {"code": "busy", "message": "the server is overloaded: try again later", "retryable": True}
    return RequestFailed(conn=record.conn, id=request_id(record), payload=payload)


def encode_batch(records: list[Any]) -> bytes:
    """Encode one frame with its length prefix."""
    return add_length(_encoder.encode(records))


def encode_frames(
    records: list[Any],
    max_bytes: int = MAX_BATCH_FRAME_BYTES,
    on_failed: Callable[[Any], None] = lambda _: None,
) -> list[bytes]:
    """Encode records as one or more frames, splitting batches that are too large.

    A record that cannot be encoded is logged and dropped without affecting the others; `on_failed` is called with it.
    """
    try:
        frame = encode_batch(records)
    except (ValueError, TypeError, OverflowError, RecursionError):
        if len(records) == 1:
            extra = {"action": "link.unencodable", "record": type(records[0]).__name__}
            _log.exception("A record cannot be encoded and is dropped", extra=extra)
            on_failed(records[0])
            return []
    else:
        if len(frame) <= max_bytes or len(records) == 1:
            return [frame]
    half = len(records) // 2
    return [
        frame
        for part in (records[:half], records[half:])
        for frame in encode_frames(part, max_bytes, on_failed)
    ]


def payload_bytes(record: Any) -> int:
    """Return the payload bytes of a record; 0 for records that are always small."""
    if type(record) is StreamEvent:  # the most frequent type
        return len(record.suffix)
    if isinstance(record, Reply):
        return len(record.data)
    return sum(map(len, record.messages)) if isinstance(record, Subscribed) else 0


def decode_batch(body: bytes, *, from_gateway: bool) -> list[Any]:
    """Decode the records of a frame. Raise msgspec.MsgspecError if it is invalid."""
    return list(_requests.decode(body) if from_gateway else _records.decode(body))
