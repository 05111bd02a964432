"""Parse the texts of `timestamp("…")` and `duration("…")`: RFC 3339 timestamps and Go-style durations.

Both are kept to the millisecond.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from fractions import Fraction

from vedette.values import timestamp_from_text

__all__ = ["parse_go_duration", "parse_rfc3339"]

_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DURATION = re.compile(r"([+-]?)((?:[0-9]{1,18}(?:\.[0-9]{0,9})?(?:ns|us|ms|[smh])){1,12})")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\.?(ns|us|ms|[smh])")
_MILLISECONDS = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_MAX_DURATION_MS = 315_576_000_000_000
"""Ten thousand years, the range of durations in CEL."""


def parse_rfc3339(text: str) -> datetime:
    """Parse a timestamp with an offset, such as `2025-01-01T00:00:00Z`; raises ValueError."""
    if not _RFC3339.fullmatch(text):
        raise ValueError("a timestamp is written 2025-01-01T00:00:00Z")
    try:
        return timestamp_from_text(text.upper())
    except (ValueError, OverflowError):
        raise ValueError("the timestamp is not a valid date between the years 1 and 9999") from None


def parse_go_duration(text: str) -> timedelta:
    """Parse a duration such as `1h30m`, `-1.5s` or `250ms`; raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        if text in ("0", "+0", "-0"):
            return timedelta()
        raise ValueError("a duration is written 1h30m, 1.5s or 250ms")
    total = sum(Fraction(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(found.group(2)))
    if total > _MAX_DURATION_MS:
        raise ValueError("a duration is at most ten thousand years")
    milliseconds = int(total)
    return timedelta(milliseconds=-milliseconds if found.group(1) == "-" else milliseconds)
