"""Decodes messages into the records that an embedded session returns and the exceptions that it raises."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from vedette.change import Event
from vedette.engine.context.result import Result
from vedette.errors import CODES, GatewayError, TransactionError, VedetteError
from vedette.queue.reports import Withdrawal
from vedette.values import duration_to_ms, timestamp_from_text, timestamp_to_text, to_canonical

__all__ = [
    "decode_error",
    "decode_event",
    "decode_notice",
    "param_to_wire",
    "result_from_wire",
    "session_closed",
]


_EVENT_ATTRIBUTES: tuple[str, ...] = ("seq", "prevSeq", "lsn", "resumeToken")


def result_from_wire(payload: dict[str, Any]) -> Result:
    result = Result(
        columns=tuple(payload["columns"]),
        rows=[tuple(row) for row in payload["rows"]],
        warnings=tuple(payload["warnings"]),
        handle=payload.get("handle"),
        tick=payload.get("tick"),
    )
    for name in ("created", "modified", "deleted", "linked", "unlinked"):
        setattr(result, name, payload[name])
    return result


def decode_event(message: dict[str, Any], now: float) -> Event:
    """Decode an event of a watch or filter. For a filter, `match` is the document and `attributes` holds the delta.

    `attributes` of a delivery also hold its arrival time on the client's clock, when its lease roughly started.
    """
    attributes = {name: message[name] for name in _EVENT_ATTRIBUTES if name in message}
    if "delta" in message:
        delta = message["delta"]
        attributes["delta"] = delta
        return Event(
            type=str(delta["type"]),
            tick=int(message["lsn"]),
            position=int(message["seq"]),
            match=delta.get("document"),
            attributes=attributes,
        )
    payload = message["payload"]
    if "attempt" in payload:
        attributes["attempt"], attributes["arrived"] = payload["attempt"], now
    return _event(payload, attributes)


def _event(payload: dict[str, Any], attributes: dict[str, Any]) -> Event:
    matches, inner = payload.get("matches"), payload.get("events")
    start, end = payload.get("window_start"), payload.get("window_end")
    return Event(
        type=str(payload["type"]),
        tick=int(payload["tick"]),
        position=int(payload["position"]),
        match=payload.get("match"),
        prev=payload.get("prev"),
        matches=tuple(matches) if matches is not None else None,
        delivery_id=payload.get("delivery_id"),
        window_start=timestamp_from_text(start) if start is not None else None,
        window_end=timestamp_from_text(end) if end is not None else None,
        events=tuple(_event(each, {}) for each in inner) if inner is not None else None,
        dropped=int(payload.get("dropped", 0)),
        attributes=attributes,
    )


def param_to_wire(value: Any) -> Any:
    """Return the JSON form of a parameter; timestamps and durations keep their type."""
    if isinstance(value, list | tuple):
        return [param_to_wire(each) for each in value]
    if isinstance(value, datetime):
        moment = to_canonical(value)
        assert isinstance(moment, datetime)
        return {"type": "timestamp", "value": timestamp_to_text(moment)}
    if isinstance(value, timedelta):
        return {"type": "duration", "value": duration_to_ms(value)}
    return value


_CLASSES: dict[str, type[VedetteError]] = {kind.category: kind for kind in VedetteError.__subclasses__()}
_OWN_CODES = {"unauthorized": "E4001", "invalid_auth": "E4001", "forbidden": "E4001", "busy": "E4004"}


def decode_error(payload: dict[str, Any]) -> VedetteError:
    """Return the exception for the payload of an `error` message."""
    code, text = str(payload.get("code", "")), str(payload.get("message", ""))
    text = text.removeprefix("Subscribe failed: ")
    if code not in CODES:
        return GatewayError(_OWN_CODES.get(code, "E4003"), f"{code}: {text}" if code else text)
    words, _, rest = text.partition(f": {code} ")
    kind = _CLASSES.get(words, VedetteError)
    return kind(code, rest.partition(": ")[2] or text, fields=payload.get("fields") or {})


def decode_notice(payload: dict[str, Any]) -> VedetteError | Withdrawal:
    """Return a notice for a watch's owner: an error, or the withdrawal of a delivery."""
    if payload.get("code") == Withdrawal.code:
        fields = payload.get("fields") or {}
        return Withdrawal(str(fields.get("delivery_id")), str(fields.get("element")))
    return decode_error(payload)


def session_closed() -> TransactionError:
    """Return the error that a closed embedded session raises, too."""
    return TransactionError("E5007", "The session is closed")
