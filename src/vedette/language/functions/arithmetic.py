"""Arithmetic on values: one function per pair of operand types. `operators.py` selects the function by static type.

Integers are 64-bit two's complement and wrap. Division truncates toward zero, and the remainder has the sign of the
dividend, as in C. Floats follow IEEE 754 and never raise, not even for division by zero.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any, TypeVar

from vedette.errors import QueryError
from vedette.values import INT_MAX, INT_MIN, wrap_int

__all__ = [
    "add_floats",
    "add_ints",
    "add_milliseconds",
    "add_temporal",
    "concatenate",
    "divide_duration",
    "divide_durations",
    "divide_floats",
    "divide_ints",
    "milliseconds_plus",
    "multiply_durations",
    "multiply_floats",
    "multiply_ints",
    "negate_duration",
    "negate_float",
    "negate_int",
    "remainder_floats",
    "remainder_ints",
    "subtract_floats",
    "subtract_ints",
    "subtract_milliseconds",
    "subtract_temporal",
]

_MILLISECOND = timedelta(milliseconds=1)
_Temporal = TypeVar("_Temporal", datetime, timedelta)


# --- Int --------------------------------------------------------------------------------------------------------


def add_ints(left: int, right: int) -> int:
    total = left + right
    return total if INT_MIN <= total <= INT_MAX else wrap_int(total)


def subtract_ints(left: int, right: int) -> int:
    difference = left - right
    return difference if INT_MIN <= difference <= INT_MAX else wrap_int(difference)


def multiply_ints(left: int, right: int) -> int:
    product = left * right
    return product if INT_MIN <= product <= INT_MAX else wrap_int(product)


def divide_ints(left: int, right: int) -> int:
    if left >= 0 and right > 0:
        return left // right
    if right == 0:
        raise _division_by_zero()
    quotient = _truncated(left, right)
    return quotient if quotient <= INT_MAX else wrap_int(quotient)


def remainder_ints(left: int, right: int) -> int:
    if left >= 0 and right > 0:
        return left % right
    if right == 0:
        raise _division_by_zero()
    size = abs(left) % abs(right)
    return -size if left < 0 else size


def negate_int(operand: int) -> int:
    return -operand if operand != INT_MIN else INT_MIN


# --- Float, and Int with Float ----------------------------------------------------------------------------------


def add_floats(left: float, right: float) -> float:
    return left + right


def subtract_floats(left: float, right: float) -> float:
    return left - right


def multiply_floats(left: float, right: float) -> float:
    return left * right


def divide_floats(left: float, right: float) -> float:
    try:
        return left / right
    except ZeroDivisionError:
        if left == 0 or left != left:  # noqa: PLR0124 - the test for NaN
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder_floats(left: float, right: float) -> float:
    try:
        return math.fmod(left, right)
    except ValueError:  # x % 0.0 and infinity % x
        return math.nan


def negate_float(operand: float) -> float:
    return -operand


# --- Timestamp, Duration, and Int as milliseconds ---------------------------------------------------------------


def add_temporal(left: Any, right: Any) -> Any:
    try:
        return left + right
    except OverflowError:
        raise _out_of_range() from None


def subtract_temporal(left: Any, right: Any) -> Any:
    try:
        return left - right
    except OverflowError:
        raise _out_of_range() from None


def add_milliseconds(left: _Temporal, right: int) -> _Temporal:
    try:
        return left + timedelta(milliseconds=right)
    except OverflowError:
        raise _out_of_range() from None


def milliseconds_plus(left: int, right: _Temporal) -> _Temporal:
    return add_milliseconds(right, left)


def subtract_milliseconds(left: _Temporal, right: int) -> _Temporal:
    try:
        return left - timedelta(milliseconds=right)
    except OverflowError:
        raise _out_of_range() from None


def multiply_durations(left: Any, right: Any) -> Any:
    try:
        return left * right
    except OverflowError:
        raise _out_of_range() from None


def divide_duration(left: timedelta, right: int) -> timedelta:
    if right == 0:
        raise _division_by_zero()
    return timedelta(milliseconds=_truncated(left // _MILLISECOND, right))


def divide_durations(left: timedelta, right: timedelta) -> int:
    if not right:
        raise _division_by_zero()
    return _truncated(left // _MILLISECOND, right // _MILLISECOND)


def negate_duration(operand: timedelta) -> timedelta:
    try:
        return -operand
    except OverflowError:
        raise _out_of_range() from None


# --- String, List -----------------------------------------------------------------------------------------------


def concatenate(left: Any, right: Any) -> Any:
    return left + right


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _division_by_zero() -> QueryError:
    return QueryError("E2101", "Division by zero")


def _out_of_range() -> QueryError:
    return QueryError("E2102", "the result is outside the range of timestamps and durations")
