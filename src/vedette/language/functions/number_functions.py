"""Functions over numbers (spec/language.md §2.4), and `min` and `max` over anything that has an order."""

from __future__ import annotations

import math
from typing import Any

from vedette.errors import QueryError
from vedette.language.value_kinds import format_for_error
from vedette.values import INT_MAX, INT_MIN

__all__ = ["absolute", "ceil", "floor", "is_nan", "maximum", "minimum", "round_half_up"]


def absolute(number: Any) -> Any:
    """Of an Int, a Float or a Duration; the smallest Int has no positive twin and wraps to itself."""
    return abs(number) if number != INT_MIN or type(number) is not int else INT_MIN


def floor(number: float) -> int:
    return _to_int64(math.floor, number)


def ceil(number: float) -> int:
    return _to_int64(math.ceil, number)


def round_half_up(number: float) -> int:
    """To the nearest Int, a half toward +∞. Not `floor(x + 0.5)`: that sum rounds 0.49999999999999994 up."""
    low = _to_int64(math.floor, number)
    return low + 1 if number - low >= 0.5 else low


def is_nan(number: float) -> bool:
    return math.isnan(number)


def minimum(left: Any, right: Any) -> Any:
    return _min_max(left, right, left <= right)


def maximum(left: Any, right: Any) -> Any:
    return _min_max(left, right, left >= right)


def _min_max(left: Any, right: Any, take_left: bool) -> Any:
    """Int with Float gives a Float; NaN with anything gives NaN."""
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
        "E2102", f"{format_for_error(number)} has no Int near it: an Int is a whole number of 64 bits"
    )
