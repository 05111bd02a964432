"""Equality and order of values whose type is known only at run time: unions, external attributes, mixed lists."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from vedette.element import Element
from vedette.errors import QueryError
from vedette.language.value_kinds import kind_of_value
from vedette.values import is_nan

__all__ = [
    "ORDER_OPERATORS",
    "distinct_key",
    "dynamic_comparator",
    "value_of_distinct_key",
    "values_equal",
]

ORDER_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def values_equal(left: Any, right: Any) -> bool:
    """Compare two values, nulls included. A Bool never equals a number; an element equals its id."""
    if isinstance(left, Element):
        left = left.id
    if isinstance(right, Element):
        right = right.id
    if (left is True or left is False) is not (right is True or right is False):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(values_equal, left, right))
    return bool(left == right)


def dynamic_comparator(op: str) -> Callable[[Any, Any], bool]:
    """Return `<`, `<=`, `>` or `>=` for values of any kind; raises E2102 if the kinds have no common order."""
    compare = ORDER_OPERATORS[op]

    def apply(left: Any, right: Any) -> bool:
        if _order_family(left) is not _order_family(right):
            kinds = f"{kind_of_value(left)} and {kind_of_value(right)}"
            raise QueryError("E2102", f"Invalid operator '{op}' for values of types {kinds}")
        return compare(left, right)

    return apply


def _order_family(value: Any) -> type:
    for kind in (bool, str, datetime, timedelta):
        if isinstance(value, kind):
            return kind
    return float if isinstance(value, (int, float)) else object


_NAN = (float, "NaN")
"""The key of NaN. NaN does not equal itself, but DISTINCT and grouping treat it as one value."""


def distinct_key(value: Any) -> Any:
    """Return a hashable key. Two values have equal keys if and only if they are equal."""
    kind = type(value)
    if kind is Element:
        return (Element, value.id)
    if kind is bool:
        return (bool, value)
    if kind is list:
        return (list, tuple(distinct_key(item) for item in value))
    return _NAN if is_nan(value) else value


def value_of_distinct_key(key: Any) -> Any:
    """Return a value whose `distinct_key` is this one. Elements are not supported: their keys hold only the id."""
    if type(key) is not tuple:
        return key
    kind, content = key
    if kind is list:
        return [value_of_distinct_key(item) for item in content]
    return math.nan if key == _NAN else content
