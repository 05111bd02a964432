"""What gateways and the engine's broker say to each other: the same records within a process and between processes.

Between processes each batch is one frame on a Unix socket: 4 bytes of length, big-endian, then a MessagePack array of
records. The first frame of a worker is a `Hello` with the version of this format and the secret of the data directory;
a broker that speaks another version refuses with `Goodbye`. `conn` names a connection within its link.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from vedette.gateway.wire.counters import Tally

__all__ = [
    "LINK_VERSION",
    "Answer",
    "Asked",
    "CaughtUp",
    "Drain",
    "Drop",
    "Ended",
    "Failed",
    "Figures",
    "Goodbye",
    "Hello",
    "Notice",
    "Open",
    "Opened",
    "Renew",
    "Replay",
    "Request",
    "Said",
    "Settle",
    "Shut",
    "Stale",
    "Steer",
    "SubscribeTo",
    "Subscribed",
    "Take",
    "Told",
    "Trim",
    "Unsubscribed",
    "Welcome",
    "decode_batch",
    "encode_batch",
    "encode_frames",
    "weight",
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


class Open(_Record, tag="open_connection"):
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


class Renew(_Record, tag="update_claims"):
    """A connection has shown another token, whose claims are others."""

    conn: int
    claims: dict[str, Any]


class Shut(_Record, tag="close_connection"):
    """A connection has gone."""

    conn: int
    orderly: bool
    """It said goodbye, or was asked to go: what it held goes back without blame."""
    returns: bool
    """It may come back and resume: keep its streams for a while."""


class Asked(_Record, tag="execute_request"):
    """`execute`, `run` or `define`: one text."""

    conn: int
    id: str | None
    kind: str
    text: str
    params: dict[str, Any] = {}


class SubscribeTo(_Record, tag="subscribe_request"):
    conn: int
    sub: str
    payload: Any
    """The `frames.Subscribe` as an object of plain values."""


class Drop(_Record, tag="unsubscribe_request"):
    """Unsubscribe."""

    conn: int
    id: str | None
    sub: str


class Take(_Record, tag="resume_request"):
    """Resume with a token."""

    conn: int
    id: str | None
    sub: str
    token: str
    last_seq: dict[int, int] | None


class Replay(_Record, tag="replay_request"):
    """Bring a subscription up that fell behind: everything after `seq`."""

    conn: int
    sub: str
    seq: int


class Trim(_Record, tag="ack_events"):
    """Client ack: everything up to `seq` has arrived. Without `sub`: of all its subscriptions."""

    conn: int
    sub: str | None
    seq: int


class Settle(_Record, tag="settle_delivery"):
    """ACK, NACK or EXTEND of one delivery."""

    conn: int
    id: str | None
    operation: str
    delivery: str
    retry: bool = True
    milliseconds: int | None = None
    cause: str | None = None
    release: bool = False


class Steer(_Record, tag="manage_request"):
    """Pause, resume, cancel, alter or pull from a watch of one's own."""

    conn: int
    id: str | None
    sub: str
    operation: str
    options: str | None = None
    limit: int | None = None


class Figures(_Record, tag="gateway_stats"):
    """How a gateway is doing, once a second."""

    connections: int
    subscriptions: int
    outbox_bytes: int
    outbox_limit_bytes: int
    load: int
    tally: Tally


Request = Open | Renew | Shut | Asked | SubscribeTo | Drop | Take | Replay | Trim | Settle | Steer

# --- from the broker to a gateway -------------------------------------------------------------------------------


class Welcome(_Record, tag="welcome"):
    version: int


class Goodbye(_Record, tag="link_rejected"):
    why: str


class Drain(_Record, tag="drain"):
    """Tell your clients to connect anew, elsewhere, and end."""

    seconds: float


class Opened(_Record, tag="connection_opened"):
    conn: int
    id: str | None


class Failed(_Record, tag="request_failed"):
    """A request was refused; `payload` is what the `error` message says."""

    conn: int
    id: str | None
    payload: dict[str, Any]
    close: int = 0
    """The code to close the connection with, which cannot go on; 0: it goes on."""


class Answer(_Record, tag="reply"):
    """The answer to a request, ready to send."""

    conn: int
    data: bytes


class Subscribed(_Record, tag="subscribed"):
    """The subscription stands: `first` is sent, then what `stream` is told after `seq`."""

    conn: int
    sub: str
    stream: int
    seq: int
    first: list[bytes]
    head: bytes
    """How an event of this stream begins, up to the receiver's name."""
    private: bool = False
    """No replay: its events are bounded by credit, not by the window."""
    replay: bool = False
    """What came after `seq` follows in a `CaughtUp`: a resume."""


class Notice(_Record, tag="notice"):
    """Something for a client that it did not ask for, ready to send."""

    conn: int
    data: bytes


class Unsubscribed(_Record, tag="unsubscribed"):
    conn: int
    sub: str
    data: bytes | None


class Told(_Record, tag="stream_event"):
    """An event of a stream, for everyone who is subscribed to it here."""

    stream: int
    seq: int
    tail: bytes
    at: float
    """When it was committed, on the machine's monotonic scale: its processes read the same."""


class CaughtUp(_Record, tag="replayed_events"):
    """What a subscription missed; `more` when this was not all."""

    conn: int
    sub: str
    events: list[tuple[int, bytes]]
    more: bool


class Stale(_Record, tag="resync_required"):
    """A subscription cannot be brought up: its client has to begin anew."""

    conn: int
    sub: str
    reason: str


class Ended(_Record, tag="stream_ended"):
    """A stream has ended: its watch was cancelled or could not go on."""

    stream: int
    payload: dict[str, Any]


Said = (
    Welcome
    | Goodbye
    | Drain
    | Opened
    | Failed
    | Answer
    | Subscribed
    | Notice
    | Unsubscribed
    | Told
    | CaughtUp
    | Stale
    | Ended
)

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(list[Hello | Figures | Request])
_said = msgspec.msgpack.Decoder(list[Said])


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


def weight(record: Any) -> int:
    """The bytes of a record that may have many."""
    if type(record) is Told:  # nearly all of them
        return len(record.tail)
    if isinstance(record, Answer):
        return len(record.data)
    return sum(map(len, record.first)) if isinstance(record, Subscribed) else 0


def decode_batch(body: bytes, *, from_gateway: bool) -> list[Any]:
    """The records of a frame; raises msgspec.MsgspecError when it is none of ours."""
    return list(_requests.decode(body) if from_gateway else _said.decode(body))
