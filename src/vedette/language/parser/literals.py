"""The spelling and the value of literals. `lexer.py` and `template.py` both use these patterns, so they always agree.

The patterns use possessive quantifiers (`++`), so that no text makes them backtrack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from vedette.values import INT_MAX, Value, duration_from_ms, timestamp_from_text

__all__ = [
    "DURATION",
    "END_OF_WORD",
    "FLOAT_PATTERN",
    "FORBIDDEN_CHARACTERS",
    "INT_PATTERN",
    "LITERAL_PARSERS",
    "STRING_PATTERN",
    "TIMESTAMP",
    "parse_duration",
    "parse_float",
    "parse_int",
    "parse_string",
    "parse_timestamp",
]

FORBIDDEN_CHARACTERS: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff"
"""Characters that no text may contain: control characters except tab, line feed and return, and lone surrogates."""
END_OF_WORD: Final = r"(?![A-Za-z0-9_])"

_STRING_BODY: Final = rf'[^"\\\n\r{FORBIDDEN_CHARACTERS}]*+'
STRING_PATTERN: Final = rf'"{_STRING_BODY}(?:\\[^\n\r{FORBIDDEN_CHARACTERS}]{_STRING_BODY})*+"'
INT_PATTERN: Final = r"[0-9]++(?![A-Za-z_])"
FLOAT_PATTERN: Final = rf"[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?+|[eE][+-]?[0-9]++){END_OF_WORD}"
DURATION: Final = (
    r"[0-9]++(?:(?:\.[0-9]++)?\.(?:(?:millisecond|second|minute|hour|day|week)s?|ms|min|s|h)|ms|min|[smhdw])"
    + END_OF_WORD
)
TIMESTAMP: Final = (
    r"@[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]++)?+)?+(?:Z|[+-][0-9]{2}:[0-9]{2})?+)?+" + END_OF_WORD
)

_ESCAPES = 'an escape in this string is unknown; use \\" \\\\ \\/ \\b \\f \\n \\r \\t or \\u0000'
_INT_DIGITS = 19
_FLOAT_CHARACTERS = 400
_DURATION = re.compile(r"([0-9]+)(?:\.([0-9]+))?\.?([a-z]+)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MILLISECONDS_PER_UNIT = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}


def parse_string(text: str) -> str:
    """Return the value of a quoted string with JSON escapes; raises ValueError."""
    if "\\" not in text:
        return text[1:-1]
    try:
        value: str = json.loads(text, strict=False)
    except ValueError:
        raise ValueError(_ESCAPES) from None
    if _SURROGATE.search(value):
        raise ValueError("a \\u escape in this string is half of a surrogate pair; write both halves")
    return value


def parse_int(text: str) -> int:
    """Return a number up to INT_MAX + 1; raises ValueError. The parser allows INT_MAX + 1 only after a minus sign."""
    digits = text.lstrip("0") if len(text) > _INT_DIGITS else text
    if len(digits) <= _INT_DIGITS:
        number = int(digits or "0")
        if number <= INT_MAX + 1:
            return number
    raise ValueError(f"this number does not fit into 64 bits; the largest Int is {INT_MAX}")


def parse_float(text: str) -> float:
    if len(text) > _FLOAT_CHARACTERS:
        raise ValueError(
            f"this number has more than {_FLOAT_CHARACTERS} characters; write it with an exponent"
        )
    number = float(text)
    if number == float("inf"):
        raise ValueError("this number is too large for a Float")
    return number


def parse_timestamp(text: str) -> datetime:
    try:
        return timestamp_from_text(text[1:])
    except (ValueError, OverflowError) as error:
        raise ValueError(f"this is not a date in the calendar: {error}") from None


def parse_duration(text: str) -> timedelta:
    """Return the duration in whole milliseconds; raises ValueError. `1.005.seconds` is exactly 1,005 ms."""
    found = _DURATION.fullmatch(text)
    if found is None or len(text) > _FLOAT_CHARACTERS:
        raise ValueError("this duration has too many digits")
    whole, part, unit = found[1], found[2] or "", found[3]
    try:
        return duration_from_ms(int(whole + part) * _MILLISECONDS_PER_UNIT[unit] // 10 ** len(part))
    except OverflowError:
        raise ValueError("this duration is too long; the longest is 999999999 days") from None


LITERAL_PARSERS: Mapping[str, Callable[[str], Value]] = {
    "string": parse_string,
    "int": parse_int,
    "float": parse_float,
    "timestamp": parse_timestamp,
    "duration": parse_duration,
}
"""The parser of each kind of literal token. It raises ValueError with the message of E1002."""
