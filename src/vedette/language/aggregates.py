"""Aggregates over the rows of a group: COUNT, SUM, AVG, MIN, MAX, COLLECT, each with DISTINCT and WHERE.

An aggregate is a small object with `add(row)` and `result()`; nulls are skipped except by COUNT(*) and COLLECT (§2.6).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from vedette.errors import QueryError
from vedette.language.context import Row
from vedette.language.dynamic import distinct_key
from vedette.language.resolved import AggregateCall
from vedette.values import wrap_int

__all__ = ["DEFAULT_COLLECT_LIMIT", "Accumulator", "collected", "make_aggregate"]

DEFAULT_COLLECT_LIMIT = 10_000


class Accumulator(Protocol):
    def add(self, value: Any) -> None: ...
    def result(self) -> Any: ...


def collected(values: list[Any], limit: int | None) -> list[Any]:
    """What COLLECT yields: a written limit cuts silently, the default one refuses (E5003), -1 is no limit."""
    if limit is None and len(values) > DEFAULT_COLLECT_LIMIT:
        text = f"COLLECT met more than {DEFAULT_COLLECT_LIMIT:,} values: say [limit: n] or [limit: none]"
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


class _Sum:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total: Any = None

    def add(self, value: Any) -> None:
        self.total = value if self.total is None else self.total + value

    def result(self) -> Any:
        return wrap_int(self.total) if type(self.total) is int else self.total


class _Average:
    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Any = 0

    def add(self, value: Any) -> None:
        self.total = value if self.count == 0 else self.total + value
        self.count += 1

    def result(self) -> Any:
        if self.count == 0:
            return None
        if isinstance(self.total, timedelta):
            mean = self.total / self.count
            return mean - mean % timedelta(milliseconds=1)
        return float(self.total) / self.count


class _Extreme:
    __slots__ = ("best", "better")

    def __init__(self, better: Callable[[Any, Any], bool]) -> None:
        self.better = better
        self.best: Any = None

    def add(self, value: Any) -> None:
        if self.best is None or self.better(value, self.best):
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
        return collected(self.values, self.limit)


class _Distinct:
    """Passes each value on once."""

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


def _plain(call: AggregateCall) -> Accumulator:
    match call.name:
        case "COUNT":
            return _Count()
        case "SUM":
            return _Sum()
        case "AVG":
            return _Average()
        case "MIN":
            return _Extreme(lambda value, best: value < best)
        case "MAX":
            return _Extreme(lambda value, best: value > best)
    return _Collect(call.limit)


def make_aggregate(
    call: AggregateCall, operand: Callable[[Row], Any] | None, where: Callable[[Row], Any] | None
) -> Callable[[], tuple[Callable[[Row], None], Callable[[], Any]]]:
    """A factory of (add a row, result) pairs, one for each group."""
    keeps_null = call.name == "COLLECT" or operand is None

    def make() -> tuple[Callable[[Row], None], Callable[[], Any]]:
        accumulator = _Distinct(_plain(call)) if call.distinct else _plain(call)
        add = accumulator.add

        def add_row(row: Row) -> None:
            if where is not None and not where(row):
                return
            value = operand(row) if operand is not None else True
            if keeps_null or value is not None:
                add(value)

        return add_row, accumulator.result

    return make
