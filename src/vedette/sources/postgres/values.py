"""Values of PostgreSQL, from the text in which the server writes them to what a document may hold. No I/O.

Scan and stream come through here alike, so a row that was scanned and the same row when it changes are equal. The
session must write as SETTINGS say; servers and databases may have other ideas (`DateStyle = German`).
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

__all__ = ["SESSION_SETTINGS", "Values", "key_text"]

SESSION_SETTINGS = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
"""How a session that is read must write its values."""
_TOO_DEEP: list[Any] = reduce(lambda inner, _: [inner], range(MAX_DEPTH), list[Any]())
"""Stands for JSON that is nested too deep to be read: its document goes to the quarantine, as any that is too deep."""


class Values:
    """Reads cells. What Python has no value for (`infinity`, a year after 9999, 24:00) stays the server's text."""

    def __init__(self) -> None:
        self._types = Transformer()

    def decode(self, type_: int, cell: bytes | None) -> Any:
        """`type_`: the OID of its type."""
        if cell is None:
            return None
        try:
            return _plain(self._types.get_loader(type_, Format.TEXT).load(cell))
        except RecursionError:
            return _TOO_DEEP
        except (psycopg.Error, ArithmeticError, ValueError):
            return bytes(cell).decode(errors="replace")


def key_text(values: list[Any]) -> str:
    """The key of a document: the value, or a JSON list of several."""
    if len(values) == 1:
        return values[0] if isinstance(values[0], str) else json.dumps(values[0], default=str)
    return json.dumps(values, default=str)


def _plain(value: Any) -> Any:
    """A value of psycopg as a document may hold it."""
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
