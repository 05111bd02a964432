"""Functions over numbers (spec/language.md §2.4), and `min` and `max` over anything that has an order."""

from __future__ import annotations

import math
from typing import Any

from vedette.errors import QueryError
from vedette.language.value_kinds import show
from vedette.values import INT_MAX, INT_MIN

__all__ = ["absolute", "ceil", "floor", "is_nan", "larger", "round_half_up", "smaller"]


def absolute(number: Any) -> Any:
    """Of an Int, a Float or a Duration; the smallest Int has no positive twin and wraps to itself."""
    return abs(number) if number != INT_MIN or type(number) is not int else INT_MIN


def floor(number: float) -> int:
    return _whole(math.floor, number)


def ceil(number: float) -> int:
    return _whole(math.ceil, number)


def round_half_up(number: float) -> int:
    """To the nearest Int, a half toward +∞. Not `floor(x + 0.5)`: that sum rounds 0.49999999999999994 up."""
    low = _whole(math.floor, number)
    return low + 1 if number - low >= 0.5 else low


def is_nan(number: float) -> bool:
    return math.isnan(number)


def smaller(left: Any, right: Any) -> Any:
    return _extreme(left, right, left <= right)


def larger(left: Any, right: Any) -> Any:
    return _extreme(left, right, left >= right)


def _extreme(left: Any, right: Any, take_left: bool) -> Any:
    """Int with Float gives a Float; NaN with anything gives NaN."""
    if type(left) is float or type(right) is float:
        if left != left or right != right:  # noqa: PLR0124 - the test for NaN
            return math.nan
        return float(left if take_left else right)
    return left if take_left else right


def _whole(function: Any, number: float) -> int:
    try:
        whole: int = function(number)
    except (OverflowError, ValueError):  # infinity, NaN
        raise _no_int(number) from None
    if not INT_MIN <= whole <= INT_MAX:
        raise _no_int(number)
    return whole


def _no_int(number: float) -> QueryError:
    return QueryError("E2102", f"{show(number)} has no Int near it: an Int is a whole number of 64 bits")
