"""Finds the filters that a document can match, indexed by the values that they require.

A filter is split into alternatives (`subscriptions/required_keys.py`), each with equalities and optionally a range. An
alternative is stored under its fields and the values that it requires there: `doc.status == 'paid' && doc.total > 9` is
stored under the field (status), value ('paid'), with the lower bound 9. A document is looked up once per distinct set
of fields, with its own values. So the cost of a change depends on the number of distinct field sets and of candidates,
not on the number of filters.

Only conditions on the document image itself are indexed. Other inputs of a filter (`op`, `before`) differ between the
two evaluations of a change. An extra candidate costs time; a missing one would lose an event.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from vedette.language.syntax.expressions import Expression
from vedette.subscriptions.required_keys import KeyAlternative, Range, key_alternatives
from vedette.subscriptions.shape import Constant, ConstantSlot, FieldPath, ListSlot, extract_constants

__all__ = ["FilterIndex"]

T = TypeVar("T", bound=Hashable)
Values = tuple[Any, ...]
Fields = tuple[FieldPath, ...]
_Bound = tuple[FieldPath, bool, str]
"""A field, True for a lower bound, and the family of comparable values."""
_FAMILIES: Mapping[type, str] = {
    int: "number",
    float: "number",
    str: "text",
    datetime: "timestamp",
    timedelta: "duration",
}


class _RangeIndex(Generic[T]):
    """Filters sorted by the constant that bounds one field."""

    __slots__ = ("constants", "filters")

    def __init__(self) -> None:
        self.constants: list[Any] = []
        self.filters: dict[Any, dict[T, None]] = {}

    def add(self, constant: Any, item: T) -> None:
        if constant not in self.filters:
            insort(self.constants, constant)
            self.filters[constant] = {}
        self.filters[constant][item] = None

    def discard(self, constant: Any, item: T) -> None:
        filters = self.filters.get(constant)
        if filters is not None and filters.pop(item, self) is None and not filters:
            del self.filters[constant]
            del self.constants[bisect_left(self.constants, constant)]

    def matching(self, value: Any, *, rising: bool) -> Iterator[T]:
        """Yield the filters whose lower bound (rising) or upper bound the value satisfies."""
        if rising:
            constants = self.constants[: bisect_right(self.constants, value)]
        else:
            constants = self.constants[bisect_left(self.constants, value) :]
        for constant in constants:
            yield from self.filters[constant]


class _Bucket(Generic[T]):
    """Filters with equal required values: those without a range, and range indexes for those with one."""

    __slots__ = ("plain", "ranges")

    def __init__(self) -> None:
        self.plain: dict[T, None] = {}
        self.ranges: dict[_Bound, _RangeIndex[T]] = {}

    def matching(self, document: Mapping[str, Any]) -> Iterator[T]:
        yield from self.plain
        for (path, rising, family), range_index in self.ranges.items():
            value = _value(document, path)
            if _family(value) == family:
                yield from range_index.matching(value, rising=rising)


class FilterIndex(Generic[T]):
    """Items indexed by their filters."""

    def __init__(self) -> None:
        self._buckets: dict[Fields, dict[Values, _Bucket[T]]] = {}
        self._entries: dict[T, list[tuple[Fields, Values, _Bound | None, Any]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, item: T, expression: Expression) -> None:
        """Add an item. The `expression` must be bound to its request."""
        shape, constants = extract_constants(expression)
        entries = [place for each in key_alternatives(shape) for place in _index_entries(each, constants)]
        self._entries[item] = list(dict.fromkeys(entries))
        for fields, values, bound, constant in self._entries[item]:
            bucket = self._buckets.setdefault(fields, {}).setdefault(values, _Bucket())
            if bound is None:
                bucket.plain[item] = None
            else:
                bucket.ranges.setdefault(bound, _RangeIndex()).add(constant, item)

    def remove(self, item: T) -> None:
        for fields, values, bound, constant in self._entries.pop(item, ()):
            buckets = self._buckets[fields]
            bucket = buckets[values]
            if bound is None:
                bucket.plain.pop(item, None)
            elif bound in bucket.ranges:
                range_index = bucket.ranges[bound]
                range_index.discard(constant, item)
                if not range_index.constants:
                    del bucket.ranges[bound]
            if not bucket.plain and not bucket.ranges:
                del buckets[values]
            if not buckets:
                del self._buckets[fields]

    def candidates(self, images: Iterable[Mapping[str, Any] | None]) -> dict[T, None]:
        """Return every item whose filter can match one of the images, in no particular order."""
        found: dict[T, None] = {}
        for document in images:
            if document is None:
                continue
            for fields, buckets in self._buckets.items():
                values = tuple(_value(document, path) for path in fields)
                try:
                    bucket = buckets.get(values)
                except TypeError:  # a list or a map equals no constant
                    continue
                if bucket is not None:
                    found.update(dict.fromkeys(bucket.matching(document)))
        return found


def _index_entries(
    alternative: KeyAlternative, constants: tuple[Constant, ...]
) -> Iterator[tuple[Fields, Values, _Bound | None, Any]]:
    equalities = [e for e in alternative.equalities if _is_own(e.path)]
    fields = tuple(e.path for e in equalities)
    bound, constant = _bound(alternative.range, constants)
    combinations: list[list[Any]] = [[]]
    for equality in equalities:
        options: list[Any] = [True]
        if isinstance(equality.constant, ConstantSlot | ListSlot):
            value = constants[equality.constant.index]
            options = value if isinstance(value, list) else [value]
        combinations = [[*values, option] for values in combinations for option in options]
    for values in combinations:
        yield fields, tuple(values), bound, constant


def _bound(range: Range | None, constants: tuple[Constant, ...]) -> tuple[_Bound | None, Any]:
    if range is None or not _is_own(range.path):
        return None, None
    constant = constants[range.constant.index]
    family = _family(constant)
    if family is None:
        return None, None  # no value satisfies such a bound; the filter itself decides
    return (range.path, range.is_lower_bound, family), constant


def _family(value: Any) -> str | None:
    """Return the family of comparable values; None if the value has no order."""
    return _FAMILIES.get(type(value)) if not (isinstance(value, float) and math.isnan(value)) else None


def _is_own(path: FieldPath) -> bool:
    return path[0] in ("doc", "id")


def _value(document: Mapping[str, Any], path: FieldPath) -> Any:
    """Return the value at the path. A missing value is None too, since filters may treat both alike."""
    if path[0] == "id":
        return str(document.get("id"))
    value: Any = document
    for step in path[1:]:
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value
