"""The built-in functions over strings, numbers, timestamps and durations.

Every function takes values of the declared types and no nulls; `registry.py` checks types, the compiler handles null.
A string is a sequence of code points. Every field of a timestamp is in UTC. The functions are described in
docs/reference/language/expressions.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from vedette.errors import QueryError
from vedette.language.functions.formats import FORMATS
from vedette.language.value_kinds import format_for_error
from vedette.values import EPOCH, INT_MAX, INT_MIN, duration_to_ms, timestamp_from_text

__all__ = [
    "MILLISECONDS_PER_UNIT",
    "TIMESTAMP_FIELDS",
    "absolute",
    "ceil",
    "contains",
    "duration_in",
    "ends_with",
    "floor",
    "is_nan",
    "length",
    "lower",
    "maximum",
    "minimum",
    "replace",
    "round_half_up",
    "split",
    "starts_with",
    "substring",
    "timestamp",
    "trim",
    "upper",
]

_MAX_REPLACE_CHARACTERS = 16_777_216
"""Characters that `replace` may produce. Without a limit, nested calls in a short statement could fill the memory."""
TIMESTAMP_FIELDS: dict[str, Callable[[datetime], int]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
    "millisecond": lambda moment: moment.microsecond // 1000,
    "day_of_week": lambda moment: moment.isoweekday() % 7,  # 0 is Sunday
}
MILLISECONDS_PER_UNIT = {
    "milliseconds": 1,
    "seconds": 1_000,
    "minutes": 60_000,
    "hours": 3_600_000,
    "days": 86_400_000,
}


# --- strings ---------------------------------------------------------------------------------------------------


def length(text: Any) -> int:
    """Return the number of code points of a string, or of items of a list."""
    return len(text)


def lower(text: str) -> str:
    return text.lower()


def upper(text: str) -> str:
    return text.upper()


def trim(text: str) -> str:
    return text.strip()


def contains(text: str, part: str) -> bool:
    return part in text


def starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


def ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


def substring(text: str, start: int, size: int | None = None) -> str:
    """Return `size` characters from index `start`, or all if `size` is None.

    A negative start counts as 0. A start past the end or a negative size gives the empty string.
    """
    start = max(start, 0)
    if size is None:
        return text[start:]
    return text[start : start + size] if size > 0 else ""


def replace(text: str, old: str, new: str) -> str:
    """Replace all occurrences. An empty `old` is an error (E2102)."""
    if not old:
        raise QueryError(
            "E2102", "replace() cannot search for the empty string: its second argument must not be empty"
        )
    if len(new) > len(old) and len(text) + text.count(old) * (len(new) - len(old)) > _MAX_REPLACE_CHARACTERS:
        raise QueryError("E2103", f"replace() would produce more than {_MAX_REPLACE_CHARACTERS} characters")
    return text.replace(old, new)


def split(text: str, delimiter: str) -> list[str]:
    """Return the parts between delimiters; an empty delimiter gives the single characters."""
    return text.split(delimiter) if delimiter else list(text)


# --- numbers ---------------------------------------------------------------------------------------------------


def absolute(number: Any) -> Any:
    """Return the absolute value of an Int, Float or Duration. The smallest Int wraps to itself."""
    return abs(number) if number != INT_MIN or type(number) is not int else INT_MIN


def floor(number: float) -> int:
    return _to_int64(math.floor, number)


def ceil(number: float) -> int:
    return _to_int64(math.ceil, number)


def round_half_up(number: float) -> int:
    """Round to the nearest Int, a half toward +∞.

    `floor(x + 0.5)` would be wrong: the sum rounds 0.49999999999999994 up to 1.
    """
    low = _to_int64(math.floor, number)
    return low + 1 if number - low >= 0.5 else low


def is_nan(number: float) -> bool:
    return math.isnan(number)


def minimum(left: Any, right: Any) -> Any:
    return _min_max(left, right, left <= right)


def maximum(left: Any, right: Any) -> Any:
    return _min_max(left, right, left >= right)


def _min_max(left: Any, right: Any, take_left: bool) -> Any:
    """Return one of the two. An Int and a Float give a Float; if one is NaN, the result is NaN."""
    if type(left) is float or type(right) is float:
        if left != left or right != right:  # noqa: PLR0124 - the test for NaN
            return math.nan
        return float(left if take_left else right)
    return left if take_left else right


def _to_int64(function: Any, number: float) -> int:
    try:
        whole: int = function(number)
    except (OverflowError, ValueError):  # infinity, NaN
        raise _not_an_int64(number) from None
    if not INT_MIN <= whole <= INT_MAX:
        raise _not_an_int64(number)
    return whole


def _not_an_int64(number: float) -> QueryError:
    return QueryError(
        "E2102",
        f"{format_for_error(number)} cannot be rounded to an Int: an Int is a whole number of 64 bits",
    )


# --- timestamps and durations ----------------------------------------------------------------------------------


def timestamp(text: str) -> datetime:
    """Parse an ISO 8601 date, or date and time; without an offset it is UTC. Raises E2102."""
    if not FORMATS["iso_date"](text) and not FORMATS["iso_datetime"](text):
        raise QueryError(
            "E2102", f"timestamp() cannot read {format_for_error(text)}: write it like 2024-03-01T12:00:00Z"
        )
    try:
        moment = timestamp_from_text(text)
    except OverflowError:  # the offset leads to a date before the year 1
        moment = datetime.min.replace(tzinfo=EPOCH.tzinfo)
    if moment < EPOCH:
        raise QueryError("E2102", f"timestamp() cannot read {format_for_error(text)}: it is before 1970")
    return moment


def duration_in(unit: str) -> Callable[[timedelta], int]:
    """Return a function that gives the number of whole units in a duration, truncated toward zero."""
    size = MILLISECONDS_PER_UNIT[unit]

    def convert(duration: timedelta) -> int:
        total = duration_to_ms(duration)
        return total // size if total >= 0 else -(-total // size)

    return convert
