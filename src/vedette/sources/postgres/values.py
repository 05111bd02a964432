"""Convert PostgreSQL values from the server's text form to document values. No I/O.

Scan and stream use the same conversion, so a scanned row equals the same row in the stream. The session must use
SESSION_SETTINGS, because servers may have other defaults (`DateStyle = German`).
"""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format

from vedette.sources.images import MAX_DEPTH
from vedette.values import INT_MAX

__all__ = ["SESSION_SETTINGS", "TextDecoder", "key_text"]

SESSION_SETTINGS = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
"""Output settings of the session, which `TextDecoder` needs."""
_TOO_DEEP: list[Any] = reduce(lambda inner, _: [inner], range(MAX_DEPTH), list[Any]())
"""Placeholder for JSON that is nested too deeply; its document is quarantined."""


class TextDecoder:
    """Converts values of a row from text.

    Values without a Python equivalent (`infinity`, a year after 9999, 24:00) stay text.
    """

    def __init__(self) -> None:
        self._types = Transformer()

    def decode(self, type_: int, cell: bytes | None) -> Any:
        """Convert one value. `type_` is the OID of the column type."""
        if cell is None:
            return None
        try:
            return _plain(self._types.get_loader(type_, Format.TEXT).load(cell))
        except RecursionError:
            return _TOO_DEEP
        except (psycopg.Error, ArithmeticError, ValueError):
            return bytes(cell).decode(errors="replace")


def key_text(values: list[Any]) -> str:
    """Return the key of a document: the key value, or a JSON list of the values if the key has several columns."""
    if len(values) == 1:
        return values[0] if isinstance(values[0], str) else json.dumps(values[0], default=str)
    return json.dumps(values, default=str)


def _plain(value: Any) -> Any:
    """Convert a psycopg value to a document value."""
    match value:
        case Decimal():
            if value.is_finite() and value == value.to_integral_value() and abs(value) <= INT_MAX:
                return int(value)
            return float(value)
        case UUID():
            return str(value)
        case datetime() | timedelta():
            return value
        case date() | time():
            return value.isoformat()
        case bytes() | memoryview():
            return bytes(value).hex()
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case None | bool() | int() | float() | str():
            return value
    return str(value)
