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
from vedette.subscriptions.shape import Constant, FieldPath, ListSlot, Slot, extract_constants

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
        standing = self.filters.get(constant)
        if standing is not None and standing.pop(item, self) is None and not standing:
            del self.filters[constant]
            del self.constants[bisect_left(self.constants, constant)]

    def reached(self, value: Any, *, rising: bool) -> Iterator[T]:
        """Yield the filters whose lower bound (rising) or upper bound the value satisfies."""
        if rising:
            constants = self.constants[: bisect_right(self.constants, value)]
        else:
            constants = self.constants[bisect_left(self.constants, value) :]
        for constant in constants:
            yield from self.filters[constant]


class _Bucket(Generic[T]):
    """Filters with equal required values: those without a range, and range indexes for those with one."""

    __slots__ = ("plain", "scales")

    def __init__(self) -> None:
        self.plain: dict[T, None] = {}
        self.scales: dict[_Bound, _RangeIndex[T]] = {}

    def found(self, document: Mapping[str, Any]) -> Iterator[T]:
        yield from self.plain
        for (path, rising, family), scale in self.scales.items():
            value = _value(document, path)
            if _family(value) == family:
                yield from scale.reached(value, rising=rising)


class FilterIndex(Generic[T]):
    """Items indexed by their filters."""

    def __init__(self) -> None:
        self._drawers: dict[Fields, dict[Values, _Bucket[T]]] = {}
        self._known: dict[T, list[tuple[Fields, Values, _Bound | None, Any]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, item: T, expression: Expression) -> None:
        """Add an item. The `expression` must be bound to its request."""
        shape, constants = extract_constants(expression)
        places = [place for each in key_alternatives(shape) for place in _places(each, constants)]
        self._known[item] = list(dict.fromkeys(places))
        for fields, values, bound, constant in self._known[item]:
            place = self._drawers.setdefault(fields, {}).setdefault(values, _Bucket())
            if bound is None:
                place.plain[item] = None
            else:
                place.scales.setdefault(bound, _RangeIndex()).add(constant, item)

    def remove(self, item: T) -> None:
        for fields, values, bound, constant in self._known.pop(item, ()):
            drawer = self._drawers[fields]
            place = drawer[values]
            if bound is None:
                place.plain.pop(item, None)
            elif bound in place.scales:
                scale = place.scales[bound]
                scale.discard(constant, item)
                if not scale.constants:
                    del place.scales[bound]
            if not place.plain and not place.scales:
                del drawer[values]
            if not drawer:
                del self._drawers[fields]

    def candidates(self, images: Iterable[Mapping[str, Any] | None]) -> dict[T, None]:
        """Return every item whose filter can match one of the images, in no particular order."""
        found: dict[T, None] = {}
        for document in images:
            if document is None:
                continue
            for fields, drawer in self._drawers.items():
                values = tuple(_value(document, path) for path in fields)
                try:
                    place = drawer.get(values)
                except TypeError:  # a list or a map equals no constant
                    continue
                if place is not None:
                    found.update(dict.fromkeys(place.found(document)))
        return found


def _places(
    alternative: KeyAlternative, constants: tuple[Constant, ...]
) -> Iterator[tuple[Fields, Values, _Bound | None, Any]]:
    equalities = [e for e in alternative.equalities if _is_own(e.path)]
    fields = tuple(e.path for e in equalities)
    bound, constant = _bound(alternative.range, constants)
    wanted: list[list[Any]] = [[]]
    for equality in equalities:
        options: list[Any] = [True]
        if isinstance(equality.constant, Slot | ListSlot):
            value = constants[equality.constant.index]
            options = value if isinstance(value, list) else [value]
        wanted = [[*values, option] for values in wanted for option in options]
    for values in wanted:
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
    """Return the value at the path. None also stands for a missing value, since filters may treat them alike."""
    if path[0] == "id":
        return str(document.get("id"))
    value: Any = document
    for step in path[1:]:
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value
