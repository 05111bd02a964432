"""Decodes error messages into the exceptions that an embedded session raises."""

from __future__ import annotations

from typing import Any

from vedette.errors import CODES, GatewayError, TransactionError, VedetteError
from vedette.queue.notice import Withdrawal

__all__ = ["decode_error", "decode_notice", "session_closed"]

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
