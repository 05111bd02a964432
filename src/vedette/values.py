"""The values that attributes, parameters and rows may hold, and their canonical forms.

Inside Vedette a value is the Python object that a user sees: `str`, `int` (64-bit), `float`, `bool`,
`datetime` (UTC, whole milliseconds), `timedelta` (whole milliseconds), `None`, and lists of these.
A reference to a node or an edge is its id, a `str`. On the wire and in a store a timestamp is ISO-8601
text with milliseconds and `Z`, a duration is its number of milliseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isfinite, isnan
from typing import Any, TypeAlias

__all__ = [
    "EPOCH",
    "INT_MAX",
    "INT_MIN",
    "Value",
    "approximate_bytes",
    "duration_from_ms",
    "duration_to_ms",
    "duration_to_text",
    "is_nan",
    "timestamp_from_ms",
    "timestamp_from_text",
    "timestamp_to_ms",
    "timestamp_to_text",
    "to_canonical",
    "to_json",
    "wrap_int",
]

Value: TypeAlias = "str | int | float | bool | datetime | timedelta | list[Value] | dict[str, Value] | None"

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MAX_LIST_DEPTH = 20
_UNITS = ((604_800_000, "w"), (86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))


def wrap_int(number: int) -> int:
    """The 64-bit integer that `number` overflows to, in two's complement."""
    if INT_MIN <= number <= INT_MAX:
        return number
    return (number - INT_MIN) % 2**64 + INT_MIN


def is_nan(value: object) -> bool:
    """True for NaN."""
    return isinstance(value, float) and isnan(value)


def timestamp_from_ms(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def timestamp_to_ms(moment: datetime) -> int:
    return (moment - EPOCH) // _MILLISECOND


def timestamp_from_text(text: str) -> datetime:
    """Parse ISO-8601. A text without an offset is UTC. Raises ValueError if malformed."""
    return _as_utc(datetime.fromisoformat(text))


def timestamp_to_text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")[:23] + "Z"


def duration_from_ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def duration_to_ms(duration: timedelta) -> int:
    return duration // _MILLISECOND


def duration_to_text(duration: timedelta) -> str:
    """The shortest literal, such as `90s` or `7d`, with a leading minus if negative."""
    total = duration_to_ms(duration)
    size = abs(total)
    unit, word = next((pair for pair in _UNITS if size % pair[0] == 0), _UNITS[-1]) if size else (1_000, "s")
    return f"{'-' if total < 0 else ''}{size // unit}{word}"


def to_json(value: Any) -> Any:
    """The value in JSON types. NaN and the infinities become strings of these names."""
    match value:
        case datetime():
            return timestamp_to_text(value)
        case timedelta():
            return duration_to_ms(value)
        case float() if not isfinite(value):
            return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {name: to_json(item) for name, item in value.items()}
        case list() | tuple():
            return [to_json(item) for item in value]
    return value


def to_canonical(value: object) -> Value:
    """Convert an external value to its canonical form. Raises TypeError or ValueError if it has none."""
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return _encodable(value)
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]
            raise ValueError(f"the integer {_shorten(value)} does not fit into 64 bits")
        return value  # type: ignore[return-value]
    if isinstance(value, datetime):
        return _as_utc(value)
    if isinstance(value, timedelta):
        return value - value % _MILLISECOND
    if isinstance(value, (list, tuple)):
        return _canonical_list(value, 0)
    raise TypeError(f"a value of Python type {kind.__name__} has no place in the graph")


def _as_utc(moment: datetime) -> datetime:
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)


def _canonical_list(items: list[object] | tuple[object, ...], depth: int) -> list[Value]:
    if depth >= _MAX_LIST_DEPTH:
        raise ValueError(f"lists are nested more than {_MAX_LIST_DEPTH} deep")
    return [
        _canonical_list(item, depth + 1) if isinstance(item, (list, tuple)) else to_canonical(item)
        for item in items
    ]


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text holds a lone surrogate, {text[error.start]!r}, which is no character"
        ) from error
    return str(text)


def _shorten(number: object) -> str:
    if isinstance(number, int) and number.bit_length() > 128:
        return f"of {number.bit_length()} bits"
    return repr(number)


def approximate_bytes(value: Any) -> int:
    """Approximate memory of a value in bytes, without the reference to it."""
    if type(value) is str:
        return len(value)
    if type(value) is list or type(value) is tuple:
        total = 8 * len(value)
        for part in value:
            total += approximate_bytes(part)
        return total
    return 8
