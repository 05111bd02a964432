"""Client messages, field by field. This module enforces what docs/reference/protocol.md documents.

Every message is one JSON object in a text frame, `{"id"?, "type", "payload"?}`. Unknown keys are ignored in both
directions, so that either side can add new ones. Unknown types are answered with an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from vedette.errors import VedetteError
from vedette.queue.reports import Withdrawal
from vedette.values import duration_from_ms, duration_to_ms, timestamp_from_text, timestamp_to_text

__all__ = [
    "MESSAGE_TYPES",
    "QUERY_KEYS",
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
"""Maximum nesting of lists and objects in parameters and queries."""
QUERY_KEYS = frozenset({"collection", "filters", "filter", "orderBy", "limit", "startAfter", "showDeleted"})
"""Keys of a `query` that the server reads."""
MAX_ID_CHARS = 256
"""Maximum length of a message id or subscription id."""


class MessageError(Exception):
    """An invalid message. The connection replies with the error and stays open."""

    def __init__(self, code: str, text: str, id: str | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.id = code, text, id


# --- client to server -------------------------------------------------------------------------------------------


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """Authenticate for a database. A later `auth` refreshes the token of the same actor."""

    token: str = ""
    database: str | None = None
    tenant: str | None = None
    """Alias of `database`."""
    version: int = 0
    """1: the client understands grouped `subIds`."""
    checksum: bool = False
    """True to add a CRC32C of the payload to each event."""


class Subscribe(msgspec.Struct, frozen=True, kw_only=True, rename={"max_unacked": "maxUnacked"}):
    """One of: `watch` (a WATCH statement), `attach` (a durable watch), `query`, or `collection` with `filter`."""

    watch: str | None = None
    params: dict[str, Any] = {}
    attach: str | None = None
    """Handle or name of a reliable or trigger watch to reattach to."""
    query: dict[str, Any] | None = None
    collection: str | None = None
    filter: str | None = None
    """CEL expression over the documents of `collection`."""
    includeData: bool = False
    sendSnapshot: bool = False
    priority: Literal["low", "normal"] = "normal"
    consume: bool = False
    """True to read a WATCH without a mode as `mode: consume`."""
    prefetch: int | None = None
    """Consume mode: maximum number of unsettled deliveries; default 10. 0, in any mode: events are sent only in reply
    to `manage` with `pull`.
    """
    max_unacked: int | None = None
    """Hold events while this many are unacknowledged."""
    exclusive: bool = False
    """True for a watch that is never shared; required for `manage` with `alter`."""


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    lastSeq: int | dict[str, int] | None = None
    subId: str | None = None
    """New id of the subscription; default: the id of the message."""


class Execute(msgspec.Struct, frozen=True, kw_only=True):
    statement: str
    params: dict[str, Any] = {}
    script: bool = False
    """True for any number of statements, parsed as a whole before the first runs; the reply has `results`."""


class Define(msgspec.Struct, frozen=True, kw_only=True):
    ontology: str


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """`{partition, seq}` confirms events of a stream; `{deliveryId}` acknowledges a delivery of a consume watch."""

    partition: int = 0
    seq: int | None = None
    subId: str | None = None
    deliveryId: str | None = None


class Nack(msgspec.Struct, frozen=True, kw_only=True):
    deliveryId: str
    retry: bool = True
    delay: int | None = None
    """Milliseconds until the item may be delivered again."""
    cause: str | None = None
    """Reason, stored with the attempt."""
    release: bool = False
    """True to requeue the delivery without counting an attempt."""


class Extend(msgspec.Struct, frozen=True, kw_only=True):
    deliveryId: str
    by: int | None = None
    """Milliseconds; default: the watch's ack_timeout."""


class Manage(msgspec.Struct, frozen=True, kw_only=True):
    subId: str
    operation: Literal["pause", "resume", "cancel", "alter", "pull"]
    options: str | None = None
    """For `alter`: options in brackets, such as `[buffer: 10]`."""
    limit: int | None = None
    """For `pull`: maximum number of events."""


class Ping(msgspec.Struct, frozen=True, kw_only=True):
    """A `heartbeat` from a client; the server replies with one."""


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
    """One decoded client message."""

    type: str
    id: str | None
    payload: Any
    unknown_fields: tuple[str, ...] = ()
    """For `subscribe`: unknown keys of its payload."""


class _Envelope(msgspec.Struct, frozen=True):
    type: str
    id: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class _TopLevelResume(msgspec.Struct, frozen=True):
    """A resume message may have its fields beside `type` instead of inside `payload`."""

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
    """Decode a message. Raise MessageError with the text of the reply."""
    try:
        envelope = _envelope.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        text = f"a message must be a JSON object with a type: {_shortened(error)}"
        raise MessageError("invalid_frame", text) from None
    if envelope.id is not None and len(envelope.id) > MAX_ID_CHARS:
        raise MessageError("invalid_frame", f"an id may have at most {MAX_ID_CHARS} characters")
    decoder = _payloads.get(envelope.type)
    if decoder is None:
        known = ", ".join(MESSAGE_TYPES)
        text = f"unknown message type {envelope.type[:40]!r}; known types: {known}"
        raise MessageError("unknown_type", text, envelope.id)
    raw: bytes = bytes(envelope.payload)
    if raw in (b"null", b"{}"):
        raw = _top_level_fields(data) if envelope.type == "resume" else b"{}"
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
    """Reject values that another process could not decode."""
    query = payload.query if type(payload) is Subscribe else None
    if not is_portable(payload.params, MAX_NESTING) or not is_portable(query, MAX_NESTING):
        text = f"numbers are limited to 64 bits, and lists and objects to {MAX_NESTING} levels of nesting"
        raise MessageError("invalid_payload", text, id)


def is_portable(value: Any, max_nesting: int) -> bool:
    """Return True if the value fits 64-bit integers and the nesting limit, so that every process can decode it."""
    kind = type(value)
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    if kind is not dict and kind is not list:
        return True
    if not max_nesting:
        return False
    for each in value.values() if kind is dict else value:
        if type(each) is not str and not is_portable(each, max_nesting - 1):
            return False
    return True


def _top_level_fields(data: bytes | str) -> bytes:
    try:
        return _encoder.encode(
            {k: v for k, v in msgspec.structs.asdict(_top_level.decode(data)).items() if v is not None}
        )
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return b"{}"


def _shortened(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= 200 else f"{text[:199]}…"


# --- server to client -------------------------------------------------------------------------------------------


def encode_message(type: str, payload: Any = None, id: str | None = None) -> bytes:
    """Encode one message."""
    whole: dict[str, Any] = {"type": type} if id is None else {"id": id, "type": type}
    if payload is not None:
        whole["payload"] = payload
    return _encoder.encode(whole)


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


_JSON_TYPES = frozenset((str, int, float, bool, type(None)))


def to_wire(value: Any) -> Any:
    """Return the JSON form of a value: timestamps as ISO-8601 in UTC with milliseconds, durations as milliseconds."""
    kind = type(value)
    if kind in _JSON_TYPES:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {name: each if type(each) in _JSON_TYPES else to_wire(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(each) for each in value]
    if isinstance(value, datetime):
        return timestamp_to_text(value)
    if isinstance(value, timedelta):
        return duration_to_ms(value)
    return str(value)


def decode_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as engine values. `{"type": "timestamp" | "duration", "value": …}` encodes those two types."""
    return {name: _decode_param(name, value) for name, value in params.items()}


def _decode_param(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_decode_param(name, each) for each in value]
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
        f"the parameter '{name}' is an object, but only {{type: timestamp, value: ISO-8601 text}} and "
        "{type: duration, value: milliseconds} are supported"
    )
    raise MessageError("invalid_payload", text)


def error_payload(error: VedetteError | Withdrawal) -> dict[str, Any]:
    """Return the wire form of an engine error. Its text reveals nothing to an actor that policies deny."""
    return {
        "code": error.code,
        "name": error.name,
        "message": str(error),
        "fields": to_wire(error.fields),
        "retryable": error.retryable,
    }
