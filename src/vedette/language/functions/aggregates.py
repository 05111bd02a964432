"""Accumulators of the aggregates COUNT, SUM, AVG, MIN, MAX and COLLECT, with and without DISTINCT.

Sums and averages do not depend on the order of the values: they are computed exactly and rounded once at the end
(docs/reference/language/aggregates.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Any, Protocol

from vedette.errors import QueryError
from vedette.language.functions.comparison import distinct_key
from vedette.values import is_nan, wrap_int

__all__ = [
    "DEFAULT_COLLECT_LIMIT",
    "Accumulator",
    "accumulator_for",
    "apply_collect_limit",
    "exact_average",
    "exact_sum",
]

DEFAULT_COLLECT_LIMIT = 10_000
"""Values that COLLECT accepts without an explicit limit."""
_EXACT_IN_FLOAT = 2**53
"""Integers below this have an exact float."""


class Accumulator(Protocol):
    """Computes one aggregate over the values of one group."""

    def add(self, value: Any) -> None: ...
    def result(self) -> Any: ...


def apply_collect_limit(values: list[Any], limit: int | None) -> list[Any]:
    """Return the result of COLLECT.

    An explicit limit cuts the list; past the default limit (None) E5003 is raised; -1 means no limit.
    """
    if limit is None and len(values) > DEFAULT_COLLECT_LIMIT:
        text = f"COLLECT found more than {DEFAULT_COLLECT_LIMIT:,} values: set [limit: n] or [limit: none]"
        raise QueryError("E5003", text, fields={"limit": DEFAULT_COLLECT_LIMIT})
    return values if limit is None or limit < 0 else values[:limit]


class _Count:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def add(self, value: Any) -> None:
        self.total += 1

    def result(self) -> int:
        return self.total


def exact_sum(total: Any, non_finite: Sequence[float], *, floats: bool) -> Any:
    """Return SUM from the exact total of the finite values; `non_finite` are the infinities and NaNs.

    An Int sum wraps at 64 bits. `floats`: the result is a Float.
    """
    if non_finite:
        return sum(non_finite)
    if isinstance(total, timedelta):
        return total
    return _rounded(total) if floats else wrap_int(int(total))


def exact_average(total: Any, non_finite: Sequence[float], count: int) -> Any:
    """Return AVG from the exact total; an average of durations is truncated to whole milliseconds."""
    if non_finite:
        return sum(non_finite) / count
    if isinstance(total, timedelta):
        return (total // count) - (total // count) % timedelta(milliseconds=1)
    return (total if isinstance(total, int) else _rounded(total)) / count


def _rounded(total: Fraction | float) -> float:
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


class _Sum:
    """SUM. Integers and finite floats are added exactly."""

    __slots__ = ("count", "floats", "non_finite", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Any = 0
        self.floats: list[float] = []
        self.non_finite: list[float] = []

    def add(self, value: Any) -> None:
        self.count += 1
        if type(value) is not float:
            self.total = value if type(self.total) is int and self.total == 0 else self.total + value
        elif math.isfinite(value):
            self.floats.append(value)
        else:
            self.non_finite.append(value)

    def exact(self) -> Any:
        """Return the exact total, or the nearest float where `math.fsum` can compute it, which is faster."""
        if not self.floats:
            return self.total
        try:
            if -_EXACT_IN_FLOAT < self.total < _EXACT_IN_FLOAT:
                return math.fsum((*self.floats, self.total))
        except OverflowError:
            pass
        return sum(map(Fraction, self.floats), Fraction(self.total))

    def result(self) -> Any:
        if not self.count:
            return None
        return exact_sum(self.exact(), self.non_finite, floats=bool(self.floats or self.non_finite))


class _Average(_Sum):
    __slots__ = ()

    def result(self) -> Any:
        return exact_average(self.exact(), self.non_finite, self.count) if self.count else None


class _MinMax:
    """MIN and MAX. If one value is NaN the result is NaN, as in min(a, b), whatever the order of the values."""

    __slots__ = ("best", "better")

    def __init__(self, better: Callable[[Any, Any], bool]) -> None:
        self.better = better
        self.best: Any = None

    def add(self, value: Any) -> None:
        if self.best is None or is_nan(value) or self.better(value, self.best):
            self.best = value

    def result(self) -> Any:
        return self.best


class _Collect:
    __slots__ = ("limit", "values")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.values: list[Any] = []

    def add(self, value: Any) -> None:
        if self.limit is None or self.limit < 0 or len(self.values) < self.limit:
            self.values.append(value)

    def result(self) -> list[Any]:
        return apply_collect_limit(self.values, self.limit)


class _Distinct:
    """Passes each distinct value to another accumulator once."""

    __slots__ = ("inner", "seen")

    def __init__(self, inner: Accumulator) -> None:
        self.inner = inner
        self.seen: set[Any] = set()

    def add(self, value: Any) -> None:
        key = distinct_key(value)
        if key not in self.seen:
            self.seen.add(key)
            self.inner.add(value)

    def result(self) -> Any:
        return self.inner.result()


def accumulator_for(name: str, *, limit: int | None = None, distinct: bool = False) -> Accumulator:
    """Return an empty accumulator for the aggregate `name` in upper case; `limit` is COLLECT's."""
    accumulator = _plain_accumulator(name, limit)
    return _Distinct(accumulator) if distinct else accumulator


def _plain_accumulator(name: str, limit: int | None) -> Accumulator:
    match name:
        case "COUNT":
            return _Count()
        case "SUM":
            return _Sum()
        case "AVG":
            return _Average()
        case "MIN":
            return _MinMax(lambda value, best: value < best)
        case "MAX":
            return _MinMax(lambda value, best: value > best)
    return _Collect(limit)
