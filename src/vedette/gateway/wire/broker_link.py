"""What gateways and the engine's broker say to each other: the same records within a process and between processes.

Between processes each batch is one frame on a Unix socket: 4 bytes of length, big-endian, then a MessagePack array of
records. The first frame of a worker is a `Hello` with the version of this format and the secret of the data directory;
a broker that speaks another version refuses with `LinkRejected`. `conn` names a connection within its link.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from vedette.gateway.wire.counters import Counters

__all__ = [
    "LINK_VERSION",
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
    "decode_batch",
    "encode_batch",
    "encode_frames",
    "payload_bytes",
]

LINK_VERSION = 3
FRAME_BYTES = 16 * 1024 * 1024
"""Of a frame with more than one record; far below what either end takes."""
_log = logging.getLogger(__name__)


class _Record(msgspec.Struct, kw_only=True, array_like=True):
    """A record of the link: an array of its tag and its fields in the order of their definition."""


# --- from a gateway to the broker -------------------------------------------------------------------------------


class Hello(_Record, tag="hello"):
    version: int
    secret: bytes
    name: str


class OpenConnection(_Record, tag="open_connection"):
    """A connection has shown who it is."""

    conn: int
    id: str | None
    tenant: str
    actor: str | None
    """None with `system`: the system context."""
    system: bool
    claims: dict[str, Any] = {}
    checksum: bool = False
    local: bool = False
    """Through the socket of the data directory."""


class UpdateClaims(_Record, tag="update_claims"):
    """A connection has shown another token, whose claims are others."""

    conn: int
    claims: dict[str, Any]


class CloseConnection(_Record, tag="close_connection"):
    """A connection has gone."""

    conn: int
    clean: bool
    """It said goodbye, or was asked to go: what it held goes back without blame."""
    may_resume: bool
    """It may come back and resume: keep its streams for a while."""


class ExecuteRequest(_Record, tag="execute_request"):
    """`execute`, `run` or `define`: one text."""

    conn: int
    id: str | None
    kind: str
    text: str
    params: dict[str, Any] = {}


class SubscribeRequest(_Record, tag="subscribe_request"):
    conn: int
    sub_id: str
    payload: Any
    """The `frames.Subscribe` as an object of plain values."""


class UnsubscribeRequest(_Record, tag="unsubscribe_request"):
    """Unsubscribe."""

    conn: int
    id: str | None
    sub_id: str


class ResumeRequest(_Record, tag="resume_request"):
    """Resume with a token."""

    conn: int
    id: str | None
    sub_id: str
    token: str
    last_seq: dict[int, int] | None


class ReplayRequest(_Record, tag="replay_request"):
    """Bring a subscription up that fell behind: everything after `seq`."""

    conn: int
    sub_id: str
    seq: int


class AckEvents(_Record, tag="ack_events"):
    """Client ack: everything up to `seq` has arrived. Without `sub`: of all its subscriptions."""

    conn: int
    sub_id: str | None
    seq: int


class SettleDelivery(_Record, tag="settle_delivery"):
    """ACK, NACK or EXTEND of one delivery."""

    conn: int
    id: str | None
    operation: str
    delivery: str
    retry: bool = True
    milliseconds: int | None = None
    cause: str | None = None
    release: bool = False


class ManageRequest(_Record, tag="manage_request"):
    """Pause, resume, cancel, alter or pull from a watch of one's own."""

    conn: int
    id: str | None
    sub_id: str
    operation: str
    options: str | None = None
    limit: int | None = None


class GatewayStats(_Record, tag="gateway_stats"):
    """How a gateway is doing, once a second."""

    connections: int
    subscriptions: int
    outbox_bytes: int
    outbox_limit_bytes: int
    load: int
    tally: Counters


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
    why: str


class Drain(_Record, tag="drain"):
    """Tell your clients to connect anew, elsewhere, and end."""

    seconds: float


class ConnectionOpened(_Record, tag="connection_opened"):
    conn: int
    id: str | None


class RequestFailed(_Record, tag="request_failed"):
    """A request was refused; `payload` is what the `error` message says."""

    conn: int
    id: str | None
    payload: dict[str, Any]
    close: int = 0
    """The code to close the connection with, which cannot go on; 0: it goes on."""


class Reply(_Record, tag="reply"):
    """The answer to a request, ready to send."""

    conn: int
    data: bytes


class Subscribed(_Record, tag="subscribed"):
    """The subscription stands: `first` is sent, then what `stream` is told after `seq`."""

    conn: int
    sub_id: str
    stream: int
    seq: int
    messages: list[bytes]
    event_prefix: bytes
    """How an event of this stream begins, up to the receiver's name."""
    credit_based: bool = False
    """No replay: its events are bounded by credit, not by the window."""
    replay_follows: bool = False
    """What came after `seq` follows in a `ReplayedEvents`: a resume."""


class Notice(_Record, tag="notice"):
    """Something for a client that it did not ask for, ready to send."""

    conn: int
    data: bytes


class Unsubscribed(_Record, tag="unsubscribed"):
    conn: int
    sub_id: str
    data: bytes | None


class StreamEvent(_Record, tag="stream_event"):
    """An event of a stream, for everyone who is subscribed to it here."""

    stream: int
    seq: int
    suffix: bytes
    committed_at: float
    """When it was committed, on the machine's monotonic scale: its processes read the same."""


class ReplayedEvents(_Record, tag="replayed_events"):
    """What a subscription missed; `more` when this was not all."""

    conn: int
    sub: str
    events: list[tuple[int, bytes]]
    more: bool


class ResyncRequired(_Record, tag="resync_required"):
    """A subscription cannot be brought up: its client has to begin anew."""

    conn: int
    sub: str
    reason: str


class StreamEnded(_Record, tag="stream_ended"):
    """A stream has ended: its watch was cancelled or could not go on."""

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

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(list[Hello | GatewayStats | GatewayRequest])
_said = msgspec.msgpack.Decoder(list[BrokerRecord])


def encode_batch(records: list[Any]) -> bytes:
    """One frame for the socket, its length in front."""
    body = _encoder.encode(records)
    return len(body).to_bytes(4, "big") + body


def encode_frames(
    records: list[Any],
    most_bytes: int = FRAME_BYTES,
    unsaid: Callable[[Any], None] = lambda _: None,
) -> list[bytes]:
    """The records as frames of a size that the other end takes; mostly one.

    What is wrong with one record keeps no other from being said: `unsaid` is told which it was.
    """
    try:
        frame = encode_batch(records)
    except (ValueError, TypeError, OverflowError, RecursionError):
        if len(records) == 1:
            extra = {"action": "link.unsaid", "record": type(records[0]).__name__}
            _log.exception("A record cannot be encoded and is dropped", extra=extra)
            unsaid(records[0])
            return []
    else:
        if len(frame) <= most_bytes or len(records) == 1:
            return [frame]
    half = len(records) // 2
    return [
        frame
        for part in (records[:half], records[half:])
        for frame in encode_frames(part, most_bytes, unsaid)
    ]


def payload_bytes(record: Any) -> int:
    """The bytes of a record that may have many."""
    if type(record) is StreamEvent:  # nearly all of them
        return len(record.suffix)
    if isinstance(record, Reply):
        return len(record.data)
    return sum(map(len, record.messages)) if isinstance(record, Subscribed) else 0


def decode_batch(body: bytes, *, from_gateway: bool) -> list[Any]:
    """The records of a frame; raises msgspec.MsgspecError when it is none of ours."""
    return list(_requests.decode(body) if from_gateway else _said.decode(body))
