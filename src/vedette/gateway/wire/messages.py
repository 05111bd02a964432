"""The wire format, field by field. docs/reference/protocol.md says the same in words; this is what is enforced.

Every message is one JSON object in a text frame, `{"id"?, "type", "payload"?}`. Unknown keys are ignored in both
directions, so that both sides may learn new ones; unknown types are answered with an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from vedette.errors import VedetteError
from vedette.queue.notice import Withdrawal
from vedette.values import duration_from_ms, duration_to_ms, timestamp_from_text, timestamp_to_text

__all__ = [
    "MESSAGE_TYPES",
    "VERSION",
    "Ack",
    "Auth",
    "Define",
    "Execute",
    "Extend",
    "Manage",
    "Message",
    "MessageError",
    "Nack",
    "Ping",
    "Resume",
    "Subscribe",
    "Unsubscribe",
    "decode_message",
    "decode_params",
    "encode",
    "encode_message",
    "error_payload",
    "is_portable",
    "to_wire",
]

VERSION = 1
MAX_NESTING = 32
"""Lists and objects in each other, in parameters and queries."""
MAX_ID_CHARS = 256
"""Characters of a message's or a subscription's id."""


class MessageError(Exception):
    """A frame that cannot be understood; the connection answers it and goes on."""

    def __init__(self, code: str, text: str, id: str | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.id = code, text, id


# --- what a client may send -------------------------------------------------------------------------------------


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """Who is there, and for which database. Again later: a fresh token for the same actor."""

    token: str = ""
    database: str | None = None
    tenant: str | None = None
    """Another name for `database`."""
    version: int = 0
    """1: the client understands grouped `subIds`."""
    checksum: bool = False
    """Whether events shall carry a CRC32C of their payload."""


class Subscribe(msgspec.Struct, frozen=True, kw_only=True, rename={"max_unacked": "maxUnacked"}):
    """One of: `watch` (a WATCH statement), `attach` (a watch that lasts), `query`, or `collection` with `filter`."""

    watch: str | None = None
    params: dict[str, Any] = {}
    attach: str | None = None
    """The handle or name of a reliable or trigger watch to take up again."""
    query: dict[str, Any] | None = None
    collection: str | None = None
    filter: str | None = None
    """CEL over the documents of `collection`."""
    includeData: bool = False
    sendSnapshot: bool = False
    priority: Literal["low", "normal"] = "normal"
    consume: bool = False
    """Work is wanted: a WATCH that names no mode is read as `mode: consume`."""
    prefetch: int | None = None
    """Consume mode: the most deliveries that are out at a time; 10 when not said. 0, in any mode: nothing is sent
    but what `manage` with `pull` asks for."""
    max_unacked: int | None = None
    """Pace: hold events back while so many are not acknowledged."""
    exclusive: bool = False
    """A watch of one's own, never shared: needed for `manage` with `alter`."""


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    lastSeq: int | dict[str, int] | None = None
    subId: str | None = None
    """What the subscription shall be called from now on; by default the message's id."""


class Execute(msgspec.Struct, frozen=True, kw_only=True):
    statement: str
    params: dict[str, Any] = {}
    script: bool = False
    """Any number of statements, parsed whole before the first runs; the answer has `results`."""


class Define(msgspec.Struct, frozen=True, kw_only=True):
    ontology: str


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """`{partition, seq}` confirms events of a stream; `{deliveryId}` ends a delivery of a consume watch."""

    partition: int = 0
    seq: int | None = None
    subId: str | None = None
    deliveryId: str | None = None


class Nack(msgspec.Struct, frozen=True, kw_only=True):
    deliveryId: str
    retry: bool = True
    delay: int | None = None
    """Milliseconds until the item may be handed out again."""
    cause: str | None = None
    """Why, for those who will look at it."""
    release: bool = False
    """Given back untried: no attempt is counted."""


class Extend(msgspec.Struct, frozen=True, kw_only=True):
    deliveryId: str
    by: int | None = None
    """Milliseconds; by default once more the watch's ack_timeout."""


class Manage(msgspec.Struct, frozen=True, kw_only=True):
    subId: str
    operation: Literal["pause", "resume", "cancel", "alter", "pull"]
    options: str | None = None
    """For `alter`: a bracket of options, `[buffer: 10]`."""
    limit: int | None = None
    """For `pull`: the most events that are wanted now."""


class Ping(msgspec.Struct, frozen=True, kw_only=True):
    """`heartbeat` from a client: answered with one."""


Payload = Auth | Subscribe | Unsubscribe | Resume | Execute | Define | Ack | Nack | Extend | Manage | Ping

MESSAGE_TYPES: Mapping[str, type[Any]] = {
    "auth": Auth,
    "subscribe": Subscribe,
    "unsubscribe": Unsubscribe,
    "resume": Resume,
    "execute": Execute,
    "define": Define,
    "ack": Ack,
    "nack": Nack,
    "extend": Extend,
    "manage": Manage,
    "heartbeat": Ping,
}


class Message(msgspec.Struct, frozen=True):
    """One understood message of a client."""

    type: str
    id: str | None
    payload: Any
    unknown_fields: tuple[str, ...] = ()
    """Of a `subscribe`: keys of its payload that are not known."""


class _Envelope(msgspec.Struct, frozen=True):
    type: str
    id: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class _TopLevelResume(msgspec.Struct, frozen=True):
    """Seeds/realtime-watching.md §4: a resume has its fields beside `type`; inside `payload` they are fine too."""

    token: str | None = None
    lastSeq: int | dict[str, int] | None = None
    subId: str | None = None


_envelope = msgspec.json.Decoder(_Envelope)
_top_level = msgspec.json.Decoder(_TopLevelResume)
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SUBSCRIBE_KEYS = frozenset(field.encode_name for field in msgspec.structs.fields(Subscribe))
_payloads = {name: msgspec.json.Decoder(kind) for name, kind in MESSAGE_TYPES.items()}
_encoder = msgspec.json.Encoder()


def decode_message(data: bytes | str) -> Message:
    """The message in a frame; raises FrameError with the words to answer."""
    try:
        envelope = _envelope.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        text = f"a message is a JSON object with a type: {_shortened(error)}"
        raise MessageError("invalid_frame", text) from None
    if envelope.id is not None and len(envelope.id) > MAX_ID_CHARS:
        raise MessageError("invalid_frame", f"an id has at most {MAX_ID_CHARS} characters")
    decoder = _payloads.get(envelope.type)
    if decoder is None:
        known = ", ".join(MESSAGE_TYPES)
        text = f"{envelope.type[:40]!r} is no type of message; known are {known}"
        raise MessageError("unknown_type", text, envelope.id)
    raw: bytes = bytes(envelope.payload)
    if raw in (b"null", b"{}"):
        raw = _raised_fields(data) if envelope.type == "resume" else b"{}"
    try:
        payload = decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        code = "invalid_auth" if envelope.type == "auth" else "invalid_payload"
        text = "invalid payload" if envelope.type == "auth" else f"{envelope.type}: {_shortened(error)}"
        raise MessageError(code, text, envelope.id) from None
    if envelope.type == "execute":
        _check_values(payload, envelope.id)
    elif envelope.type == "subscribe":
        _check_values(payload, envelope.id)
        keys = _keys.decode(raw)
        if not keys.keys() <= _SUBSCRIBE_KEYS:
            ignored = tuple(key for key in keys if key not in _SUBSCRIBE_KEYS)
            return Message(envelope.type, envelope.id, payload, ignored)
    return Message(envelope.type, envelope.id, payload)


def _check_values(payload: Execute | Subscribe, id: str | None) -> None:
    """What may hold anything holds nothing that other processes cannot read."""
    query = payload.query if type(payload) is Subscribe else None
    if not is_portable(payload.params, MAX_NESTING) or not is_portable(query, MAX_NESTING):
        text = (
            f"numbers have at most 64 bits, and at most {MAX_NESTING} lists and objects stand in each other"
        )
        raise MessageError("invalid_payload", text, id)


def is_portable(value: Any, deepest: int) -> bool:
    """Whether every process reads it as it is."""
    kind = type(value)
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    if kind is not dict and kind is not list:
        return True
    if not deepest:
        return False
    for each in value.values() if kind is dict else value:
        if type(each) is not str and not is_portable(each, deepest - 1):
            return False
    return True


def _raised_fields(data: bytes | str) -> bytes:
    try:
        return _encoder.encode(
            {k: v for k, v in msgspec.structs.asdict(_top_level.decode(data)).items() if v is not None}
        )
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return b"{}"


def _shortened(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= 200 else f"{text[:199]}…"


# --- what the server sends --------------------------------------------------------------------------------------


def encode_message(type: str, payload: Any = None, id: str | None = None) -> bytes:
    """One message as it goes into a frame."""
    whole: dict[str, Any] = {"type": type} if id is None else {"id": id, "type": type}
    if payload is not None:
        whole["payload"] = payload
    return _encoder.encode(whole)


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


_AS_THEY_ARE = frozenset((str, int, float, bool, type(None)))


def to_wire(value: Any) -> Any:
    """A value as JSON has it: moments as ISO-8601 in UTC with milliseconds, spans as milliseconds."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {name: each if type(each) in _AS_THEY_ARE else to_wire(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(each) for each in value]
    if isinstance(value, datetime):
        return timestamp_to_text(value)
    if isinstance(value, timedelta):
        return duration_to_ms(value)
    return str(value)


def decode_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the engine takes them: `{"type": "timestamp" | "duration", "value": …}` is such a value."""
    return {name: _live(name, value) for name, value in params.items()}


def _live(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_live(name, each) for each in value]
    if not isinstance(value, dict):
        return value
    kind, inner = value.get("type"), value.get("value")
    try:
        if kind == "timestamp" and isinstance(inner, str):
            return timestamp_from_text(inner)
        if kind == "duration" and isinstance(inner, int) and not isinstance(inner, bool):
            return duration_from_ms(inner)
    except (ValueError, OverflowError):
        pass
    text = (
        f"the parameter '{name}' is an object: only {{type: timestamp, value: ISO-8601 text}} and "
        "{type: duration, value: milliseconds} can be given so"
    )
    raise MessageError("invalid_payload", text)


def error_payload(error: VedetteError | Withdrawal) -> dict[str, Any]:
    """An error of the engine as a payload: its own words, which never tell a denied actor more than they may know."""
    return {
        "code": error.code,
        "name": error.name,
        "message": str(error),
        "fields": to_wire(error.fields),
        "retryable": error.retryable,
    }
