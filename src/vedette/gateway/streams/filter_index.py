"""Which filters a document can concern, without asking each: they stand under the values that they require.

A filter is read as alternatives (`subscriptions/required_keys.py`), each with equalities and perhaps a range. An
alternative stands in the drawer of its fields, under the values it wants there: `doc.status == 'paid' && doc.total > 9`
in the drawer (status), under ('paid'), from 9 on. A document opens every drawer once and looks under its own values. So
a change costs as much as the kinds of filters there are and the filters that it may concern, not all that there are.

Only conditions on the document's own image count here, since what else a filter asks about (`op`, `before`) differs
between the two questions that a change asks. Too many candidates cost time, a missed one would be a lost event.
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
"""A field, whether it must be above the constant, and the family of values that can be compared."""
_FAMILIES: Mapping[type, str] = {
    int: "number",
    float: "number",
    str: "text",
    datetime: "timestamp",
    timedelta: "duration",
}


class _RangeIndex(Generic[T]):
    """Filters in the order of the constant that one field must be above, or below."""

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
        """Filters whose constant the value is not below (rising), or not above."""
        if rising:
            constants = self.constants[: bisect_right(self.constants, value)]
        else:
            constants = self.constants[bisect_left(self.constants, value) :]
        for constant in constants:
            yield from self.filters[constant]


class _Bucket(Generic[T]):
    """What stands under the same values of a drawer: filters without a range, and scales of those with one."""

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
    """Items by their filters."""

    def __init__(self) -> None:
        self._drawers: dict[Fields, dict[Values, _Bucket[T]]] = {}
        self._known: dict[T, list[tuple[Fields, Values, _Bound | None, Any]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, item: T, expression: Expression) -> None:
        """`expression`: its request is bound already."""
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
        """Every item whose filter can be true of one of these images of a document, in no order that means anything."""
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
        return None, None  # nothing is above such a constant: let the filter itself say so
    return (range.path, range.is_lower_bound, family), constant


def _family(value: Any) -> str | None:
    """What it can be compared with; None for what has no order."""
    return _FAMILIES.get(type(value)) if not (isinstance(value, float) and math.isnan(value)) else None


def _is_own(path: FieldPath) -> bool:
    return path[0] in ("doc", "id")


def _value(document: Mapping[str, Any], path: FieldPath) -> Any:
    """What stands there; None where nothing does, since a filter may take one for the other."""
    if path[0] == "id":
        return str(document.get("id"))
    value: Any = document
    for step in path[1:]:
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value
