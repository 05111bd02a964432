"""Converts client messages to broker requests and checks what the message types cannot express.

Unknown keys of a subscribe message are ignored, and the acknowledgement lists them. A client may be newer than the
server, so an unknown key is not an error. It may also be a typo: a misspelled `filters` would match everything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire import messages
from vedette.gateway.wire.messages import QUERY_KEYS, Message, MessageError, Subscribe, encode

__all__ = [
    "add_ignored_fields",
    "check_subscribe",
    "drop_unknown_fields",
    "execute_request",
    "manage_request",
    "resume_request",
    "settle_request",
]

_MAX_EVENTS = 100_000
_MAX_SPAN_MS = 10**12


def execute_request(conn: int, msg: Message) -> link.ExecuteRequest:
    payload: messages.Execute = msg.payload
    params = messages.decode_params(payload.params)
    kind = "run" if payload.script else "execute"
    return link.ExecuteRequest(conn=conn, id=msg.id, kind=kind, text=payload.statement, params=params)


def check_subscribe(msg: Message) -> tuple[messages.Subscribe, tuple[str, ...]]:
    """Return the subscribe payload and the ignored keys. Raise MessageError without an id or a single target."""
    payload, ignored = drop_unknown_fields(msg)
    if not msg.id:
        text = "subscribe: the message needs an id, which becomes the subscription's id"
        raise MessageError("invalid_payload", text)
    chosen = [payload.watch, payload.attach, payload.query, payload.collection]
    if sum(each is not None for each in chosen) != 1:
        text = "subscribe: exactly one of watch, attach, query and collection is required"
        raise MessageError("invalid_payload", text, msg.id)
    for name, value, least in (("prefetch", payload.prefetch, 0), ("maxUnacked", payload.max_unacked, 1)):
        if value is not None and not least <= value <= _MAX_EVENTS:
            text = f"subscribe: {name} must be between {least} and {_MAX_EVENTS}"
            raise MessageError("invalid_payload", text, msg.id)
    messages.decode_params(payload.params)
    return payload, ignored


def resume_request(conn: int, msg: Message) -> link.ResumeRequest:
    payload: messages.Resume = msg.payload
    sub = payload.subId or msg.id
    if not sub:
        text = "resume: the message needs an id or subId, which names the subscription"
        raise MessageError("invalid_payload", text)
    if len(sub) > messages.MAX_ID_CHARS:
        text = f"resume: subId may have at most {messages.MAX_ID_CHARS} characters"
        raise MessageError("invalid_payload", text, msg.id)
    last = _last_seqs(payload, msg.id)
    return link.ResumeRequest(conn=conn, id=msg.id, sub_id=sub, token=payload.token, last_seq=last)


def _last_seqs(payload: messages.Resume, id: str | None) -> dict[int, int] | None:
    """Return `lastSeq` by partition; a plain number means partition 0."""
    if payload.lastSeq is None:
        return None
    if isinstance(payload.lastSeq, int):
        last = {0: payload.lastSeq}
    else:
        try:
            last = {int(partition): seq for partition, seq in payload.lastSeq.items()}
        except ValueError:
            raise MessageError("invalid_payload", "resume: partitions must be integers", id) from None
    if not all(0 <= partition < 2**32 and abs(seq) < 2**63 for partition, seq in last.items()):
        raise MessageError("invalid_payload", "resume: lastSeq is out of range", id)
    return last


def settle_request(conn: int, msg: Message) -> link.SettleDelivery:
    """Return the request for `ack` of a delivery, `nack` or `extend`."""
    payload = msg.payload
    span = getattr(payload, "delay" if msg.type == "nack" else "by", None)
    if span is not None and not 0 <= span <= _MAX_SPAN_MS:
        raise MessageError("invalid_payload", f"{msg.type}: the duration is out of range", msg.id)
    return link.SettleDelivery(
        conn=conn,
        id=msg.id,
        operation=msg.type,
        delivery=payload.deliveryId,
        retry=getattr(payload, "retry", True),
        milliseconds=span,
        cause=getattr(payload, "cause", None),
        release=getattr(payload, "release", False),
    )


def manage_request(conn: int, msg: Message) -> link.ManageRequest:
    payload: messages.Manage = msg.payload
    if payload.limit is not None and not 1 <= payload.limit <= _MAX_EVENTS:
        raise MessageError("invalid_payload", f"manage: limit must be between 1 and {_MAX_EVENTS}", msg.id)
    return link.ManageRequest(
        conn=conn,
        id=msg.id,
        sub_id=payload.subId,
        operation=payload.operation,
        options=payload.options,
        limit=payload.limit,
    )


_ITEM_KEYS = {"filters": frozenset({"field", "op", "value"}), "orderBy": frozenset({"field", "direction"})}
_MAX_NAMES = 16
_MAX_NAME_CHARS = 80
"""Characters of a name that are echoed."""


def drop_unknown_fields(msg: Message) -> tuple[Subscribe, tuple[str, ...]]:
    """Return the subscribe payload without unknown query keys, and the names of all ignored keys."""
    payload: Subscribe = msg.payload
    ignored = list(msg.unknown_fields)
    if payload.query is not None:
        payload = msgspec.structs.replace(
            payload, query=_drop_unknown(payload.query, QUERY_KEYS, "query", ignored)
        )
    return payload, tuple(name[:_MAX_NAME_CHARS] for name in ignored[:_MAX_NAMES])


def _drop_unknown(
    record: dict[str, Any], keys: frozenset[str], where: str, ignored: list[str]
) -> dict[str, Any]:
    ignored += [f"{where}.{name}" for name in record if name not in keys]
    known = {name: value for name, value in record.items() if name in keys}
    for name, inner in _ITEM_KEYS.items() if keys is QUERY_KEYS else ():
        if isinstance(items := known.get(name), list):
            known[name] = [
                _drop_unknown(item, inner, f"{where}.{name}[{number}]", ignored)
                if isinstance(item, dict)
                else item
                for number, item in enumerate(items)
            ]
    return known


def add_ignored_fields(acknowledgement: bytes, ignored: tuple[str, ...]) -> bytes:
    """Add the ignored keys to a `subscribe_ack`."""
    message = msgspec.json.decode(acknowledgement)
    if message["type"] == "subscribe_ack":  # a resume with the same id has no payload for them
        message["payload"]["ignored"] = ignored
    return encode(message)
