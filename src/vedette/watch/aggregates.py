"""Incremental aggregates: a row can be added to its group and removed again, exactly.

Sums of floats are kept as exact fractions, so that initial plus changes equals a fresh evaluation bit for bit. MIN,
MAX and DISTINCT count how often each value occurs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from fractions import Fraction
from typing import Any, Protocol

from vedette.language.functions.aggregates import apply_collect_limit, exact_average, exact_sum
from vedette.language.functions.comparison import distinct_key, value_of_distinct_key
from vedette.values import is_nan

__all__ = ["INCREMENTAL_AGGREGATES", "AggregateKind", "Contribution", "Groups", "are_incremental"]

INCREMENTAL_AGGREGATES = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX"})
"""Aggregates that are maintained incrementally.

COLLECT is re-evaluated, except over values with explicit positions.
"""


class AggregateKind(Protocol):
    """An aggregate of the language, independent of where its operand comes from."""

    @property
    def name(self) -> str: ...
    @property
    def distinct(self) -> bool: ...
    @property
    def limit(self) -> int | None: ...


def are_incremental(calls: Sequence[AggregateKind]) -> bool:
    return all(call.name in INCREMENTAL_AGGREGATES for call in calls)


class _Keeper(Protocol):
    """One accumulator of a group. Its exported state consists of values, lists and tuples only."""

    def change(self, value: Any, times: int) -> None: ...
    def result(self) -> Any: ...
    def export_state(self) -> Any: ...
    def import_state(self, state: Any) -> None: ...


class _Count:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def change(self, value: Any, times: int) -> None:
        self.total += times

    def result(self) -> int:
        return self.total

    def export_state(self) -> int:
        return self.total

    def import_state(self, state: int) -> None:
        self.total = state


class _Total:
    """SUM and AVG. Finite floats are summed exactly as fractions; infinities and NaN are counted separately."""

    __slots__ = ("_average", "_count", "_floats", "_odd", "_total")

    def __init__(self, average: bool) -> None:
        self._average = average
        self._count = 0
        self._floats = 0
        self._total: Any = 0
        self._odd: Counter[str] = Counter()

    def change(self, value: Any, times: int) -> None:
        self._count += times
        if isinstance(value, float):
            self._floats += times
            if not math.isfinite(value):
                self._odd[repr(value)] += times
                return
            value = Fraction(value)
        if isinstance(value, timedelta) and self._total == 0:
            self._total = timedelta(0)
        self._total += value * times

    def result(self) -> Any:
        if self._count == 0:
            return None
        odd = [float(text) for text, times in self._odd.items() for _ in range(times)]
        if self._average:
            return exact_average(self._total, odd, self._count)
        return exact_sum(self._total, odd, floats=self._floats > 0)

    def export_state(self) -> list[Any]:
        return [self._count, self._floats, self._total, sorted(self._odd.items())]

    def import_state(self, state: list[Any]) -> None:
        self._count, self._floats, self._total, odd = state
        self._odd = Counter(dict(odd))


class _Nan(Enum):
    """Represents every NaN: any number of them makes the result NaN."""

    NAN = "NaN"


class _Extreme:
    __slots__ = ("_pick", "_values")

    def __init__(self, pick: Callable[[Any], Any]) -> None:
        self._pick = pick
        self._values: Counter[Any] = Counter()

    def change(self, value: Any, times: int) -> None:
        key = _Nan.NAN if is_nan(value) else value
        self._values[key] += times
        if not self._values[key]:
            del self._values[key]

    def result(self) -> Any:
        if not self._values:
            return None
        return math.nan if _Nan.NAN in self._values else self._pick(self._values)

    def export_state(self) -> list[tuple[Any, int]]:
        return [(math.nan if key is _Nan.NAN else key, times) for key, times in self._values.items()]

    def import_state(self, state: list[tuple[Any, int]]) -> None:
        self._values = Counter({_Nan.NAN if is_nan(value) else value: times for value, times in state})


class _Distinct:
    __slots__ = ("_inner", "_times")

    def __init__(self, inner: _Keeper) -> None:
        self._inner = inner
        self._times: Counter[Any] = Counter()

    def change(self, value: Any, times: int) -> None:
        key = distinct_key(value)
        before = self._times[key]
        after = self._times[key] = before + times
        if not after:
            del self._times[key]
        if (before > 0) != (after > 0):
            self._inner.change(value, 1 if after > 0 else -1)

    def result(self) -> Any:
        return self._inner.result()

    def export_state(self) -> list[Any]:
        values = [(value_of_distinct_key(key), times) for key, times in self._times.items()]
        return [values, self._inner.export_state()]

    def import_state(self, state: list[Any]) -> None:
        values, inner = state
        self._times = Counter({distinct_key(value): times for value, times in values})
        self._inner.import_state(inner)


class _Collected:
    """COLLECT over pairs (position, value): in the order of positions, cut at its limit."""

    __slots__ = ("_distinct", "_limit", "_values")

    def __init__(self, limit: int | None, *, distinct: bool) -> None:
        self._limit, self._distinct = limit, distinct
        self._values: dict[Any, Any] = {}

    def change(self, value: Any, times: int) -> None:
        position, own = value
        if times > 0:
            self._values[position] = own
        else:
            self._values.pop(position, None)

    def result(self) -> list[Any]:
        values = [self._values[position] for position in sorted(self._values)]
        if self._distinct:
            values = list({distinct_key(value): value for value in reversed(values)}.values())[::-1]
        return apply_collect_limit(values, self._limit)

    def export_state(self) -> list[tuple[Any, Any]]:
        return list(self._values.items())

    def import_state(self, state: list[tuple[Any, Any]]) -> None:
        self._values = dict(state)


def _keeper(call: AggregateKind) -> _Keeper:
    plain: _Keeper
    match call.name:
        case "COLLECT":
            return _Collected(call.limit, distinct=call.distinct)
        case "COUNT":
            plain = _Count()
        case "SUM" | "AVG":
            plain = _Total(call.name == "AVG")
        case "MIN":
            plain = _Extreme(min)
        case _:
            plain = _Extreme(max)
    return _Distinct(plain) if call.distinct else plain


class _Group:
    __slots__ = ("keepers", "key_values", "rows")

    def __init__(self, key_values: tuple[Any, ...], calls: Sequence[AggregateKind]) -> None:
        self.key_values = key_values
        self.rows = 0
        self.keepers = [_keeper(call) for call in calls]


Contribution = tuple[tuple[Any, ...], list[tuple[bool, Any]]]
"""A row's part in its group: the key values, and per aggregate whether it counts and its value."""


class Groups:
    """The groups of one aggregating watch. Add and remove rows with `change`, then read `results`."""

    def __init__(self, calls: Sequence[AggregateKind]) -> None:
        self._calls = calls
        self._groups: dict[Any, _Group] = {}

    def change(self, contribution: Contribution, times: int) -> Any:
        """Add (1) or remove (-1) a row. Return the group's identity."""
        key_values, inputs = contribution
        identity = tuple([distinct_key(value) for value in key_values])
        group = self._groups.get(identity)
        if group is None:
            group = self._groups[identity] = _Group(key_values, self._calls)
        elif times > 0:
            group.key_values = key_values
        group.rows += times
        for keeper, (counts, value) in zip(group.keepers, inputs, strict=True):
            if counts:
                keeper.change(value, times)
        return identity

    def results(self, identity: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
        """Key values and aggregate results of a group; None if it has no rows."""
        group = self._groups.get(identity)
        if group is None:
            return ((), [_keeper(call).result() for call in self._calls]) if identity == () else None
        if group.rows == 0 and identity != ():
            del self._groups[identity]
            return None
        return group.key_values, [keeper.result() for keeper in group.keepers]

    def identities(self) -> list[Any]:
        return list(self._groups)

    def export_state(self) -> list[tuple[tuple[Any, ...], int, list[Any]]]:
        """Return key values, number of rows and accumulators of each group, as plain values."""
        return [
            (group.key_values, group.rows, [keeper.export_state() for keeper in group.keepers])
            for group in self._groups.values()
        ]

    def import_state(self, state: list[tuple[tuple[Any, ...], int, list[Any]]]) -> None:
        """Replace all groups by exported ones. The calls must be those of the exporting object."""
        self._groups = {}
        for key_values, rows, keepers in state:
            group = _Group(key_values, self._calls)
            group.rows = rows
            for keeper, exported in zip(group.keepers, keepers, strict=True):
                keeper.import_state(exported)
            self._groups[tuple([distinct_key(value) for value in key_values])] = group
