"""The operators and functions of document filters over values.

They follow CEL. Differences from cel-go: Booleans have no order; a whole number and a double may be added, because JSON
does not distinguish them; timestamps and durations have a resolution of one millisecond
(docs/reference/filters.md#where-this-differs-from-cel-elsewhere). An operator that does not accept its operands raises
`EvaluationError`; `&&`, `||` and `holds` may absorb it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from vedette.filters.limits import quote_name
from vedette.filters.literals import parse_go_duration, parse_rfc3339
from vedette.language.functions.arithmetic import divide_floats
from vedette.values import INT_MAX, INT_MIN

__all__ = [
    "ARITHMETIC",
    "FUNCTIONS",
    "ORDER",
    "Charge",
    "EvaluationError",
    "arithmetic_operator",
    "contains",
    "equal",
    "has_field",
    "has_member",
    "index_value",
    "logical_not",
    "numeric_negation",
    "order_operator",
    "text_operator",
]

Charge = Callable[[int], None]
"""Counts steps of one evaluation; raises StepLimitExceeded past the limit."""

CHARACTERS_PER_STEP = 64


class EvaluationError(Exception):
    """An operation has no result for these values. The text says why."""


# --- equality and membership ------------------------------------------------------------------------------------


def equal(left: Any, right: Any, charge: Charge) -> bool:
    """Compare any two values; values of different kinds are not equal. Does not recurse, so depth is no problem."""
    waiting = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            if len(one) != len(other):
                return False
            charge(len(one))
            waiting.extend(zip(one, other, strict=True))
        elif isinstance(one, Mapping) and isinstance(other, Mapping):
            if len(one) != len(other) or any(name not in other for name in one):
                return False
            charge(len(one))
            waiting.extend((value, other[name]) for name, value in one.items())
        elif not _same_scalar(one, other):
            return False
    return True


def _same_scalar(one: Any, other: Any) -> bool:
    """Python compares integers and doubles by exact value, as the filter language requires; Booleans are separate."""
    if one.__class__ is bool or other.__class__ is bool:
        return one is other
    if isinstance(one, list | tuple | Mapping) or isinstance(other, list | tuple | Mapping):
        return False
    return bool(one == other)


def contains(value: Any, container: Any, charge: Charge) -> bool:
    """`value in container`: True for an item of a list or a key of a map."""
    if isinstance(container, Mapping):
        return value.__class__ is str and value in container
    return has_member(value, container, charge)


def has_member(value: Any, items: Any, charge: Charge) -> bool:
    """True if the list contains the value; raises EvaluationError for anything but a list."""
    if not isinstance(items, list | tuple):
        raise EvaluationError(f"{_name(items)} has no members")
    charge(len(items))
    if value.__class__ is str or value is None:
        return value in items
    return any(equal(value, item, charge) for item in items)


def has_field(base: Any, name: str) -> bool:
    """True if the map has the field; raises EvaluationError for anything but a map."""
    if base.__class__ is dict or isinstance(base, Mapping):
        return name in base
    raise EvaluationError(f"{_name(base)} has no fields")


def index_value(base: Any, key: Any) -> Any:
    """`base[key]`: an item of a list by index from 0, or a field of a map by name."""
    if isinstance(base, list | tuple) and key.__class__ is int:
        if 0 <= key < len(base):
            return base[key]
        raise EvaluationError(f"the list has {len(base)} items, and no item {key}")
    if isinstance(base, Mapping) and key.__class__ is str:
        if key in base:
            return base[key]
        raise EvaluationError(f"the field {quote_name(key)} is missing")
    raise EvaluationError(f"{_name(base)} cannot be indexed by {_name(key)}")


# --- order ------------------------------------------------------------------------------------------------------

ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Python compares texts by code points, which is also the order of their UTF-8 bytes."""

_FAMILIES: dict[type, str] = {
    int: "number",
    float: "number",
    str: "text",
    datetime: "timestamp",
    timedelta: "duration",
}


def order_operator(sign: str) -> Callable[[Any, Any], bool]:
    """Return the operator `<`, `<=`, `>` or `>=`. Both operands must be numbers, texts, timestamps or durations."""
    apply = ORDER[sign]

    def test(left: Any, right: Any) -> bool:
        family = _FAMILIES.get(left.__class__)
        if family is None or family is not _FAMILIES.get(right.__class__):
            raise EvaluationError(f"{_name(left)} and {_name(right)} have no order")
        try:
            return bool(apply(left, right))
        except TypeError:  # one timestamp has an offset and the other has none
            raise EvaluationError("these timestamps have no order") from None

    return test


# --- arithmetic -------------------------------------------------------------------------------------------------


def _check_int64(number: int) -> int:
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvaluationError("the result does not fit into 64 bits")


def _divide_ints(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return _check_int64(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder(left: int, right: int) -> int:
    return left - _divide_ints(left, right) * right


def _double(apply: Callable[[float, float], float]) -> Callable[[Any, Any], Any]:
    return lambda left, right: apply(float(left), float(right))


def _numbers(whole: Callable[[int, int], int], double: Callable[[float, float], float]) -> dict[Any, Any]:
    mixed = dict.fromkeys(((int, float), (float, int), (float, float)), _double(double))
    return {(int, int): whole, **mixed}


ARITHMETIC: dict[str, dict[tuple[type, type], Callable[[Any, Any], Any]]] = {
    "+": {
        **_numbers(lambda left, right: _check_int64(left + right), operator.add),
        (str, str): operator.add,
        (list, list): operator.add,
        (datetime, timedelta): operator.add,
        (timedelta, datetime): operator.add,
        (timedelta, timedelta): operator.add,
    },
    "-": {
        **_numbers(lambda left, right: _check_int64(left - right), operator.sub),
        (datetime, datetime): operator.sub,
        (datetime, timedelta): operator.sub,
        (timedelta, timedelta): operator.sub,
    },
    "*": _numbers(lambda left, right: _check_int64(left * right), operator.mul),
    "/": _numbers(_divide_ints, divide_floats),
    "%": {(int, int): _remainder},
}
"""The implementation of each operator, by the classes of its operands."""


def arithmetic_operator(sign: str) -> Callable[[Any, Any, Charge], Any]:
    """Return the arithmetic operator `sign`. Joining texts or lists is charged by their length."""
    table = ARITHMETIC[sign]

    def apply(left: Any, right: Any, charge: Charge) -> Any:
        rule = table.get((left.__class__, right.__class__))
        if rule is None:
            raise EvaluationError(f"operator {sign} does not take {_name(left)} and {_name(right)}")
        if left.__class__ is str:
            charge((len(left) + len(right)) // CHARACTERS_PER_STEP)
        elif left.__class__ is list:
            charge(len(left) + len(right))
        try:
            return rule(left, right)
        except (OverflowError, TypeError):
            raise EvaluationError(f"{_name(left)} {sign} {_name(right)} is out of range") from None

    return apply


def numeric_negation(value: Any) -> Any:
    if value.__class__ is int:
        return _check_int64(-value)
    if value.__class__ is float:
        return -value
    raise EvaluationError(f"operator - does not take {_name(value)}")


def logical_not(value: Any) -> bool:
    if value is True or value is False:
        return not value
    raise EvaluationError(f"operator ! does not take {_name(value)}")


# --- functions --------------------------------------------------------------------------------------------------


def _size(value: Any) -> int:
    """Return the number of code points of a text, items of a list or fields of a map."""
    if isinstance(value, str | list | tuple | Mapping):
        return len(value)
    raise EvaluationError(f"{_name(value)} has no size")


_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTS WITH": str.startswith,
    "ENDS WITH": str.endswith,
}


def text_operator(op: str) -> Callable[[Any, Any, Charge], bool]:
    """Return `contains`, `startsWith` or `endsWith` for two texts."""
    test = _TEXT_TESTS[op]

    def apply(text: Any, part: Any, charge: Charge) -> bool:
        if text.__class__ is not str or part.__class__ is not str:
            raise EvaluationError(f"{_name(text)} cannot be searched for {_name(part)}")
        charge(len(text) // CHARACTERS_PER_STEP)
        return test(text, part)

    return apply


def _reader(kind: type, read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if value.__class__ is not str:
            raise EvaluationError(f"{_name(value)} cannot be converted to a {_FAMILIES[kind]}")
        try:
            return read(value)
        except ValueError as error:
            raise EvaluationError(str(error)) from None

    return convert


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "size": _size,
    "timestamp": _reader(datetime, parse_rfc3339),
    "duration": _reader(timedelta, parse_go_duration),
}
"""The functions of one argument."""


_NAMES: dict[type, str] = {
    bool: "a Boolean",
    int: "a whole number",
    float: "a double",
    str: "a text",
    datetime: "a timestamp",
    timedelta: "a duration",
    list: "a list",
    tuple: "a list",
    dict: "a map",
    type(None): "null",
}


def _name(value: Any) -> str:
    unknown = "a map" if isinstance(value, Mapping) else "a value of unknown type"
    return _NAMES.get(value.__class__, unknown)
