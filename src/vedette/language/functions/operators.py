"""Result types and implementations of + - * / % ++ and unary minus, by operand types.

Operands are never null; the compiler returns null before it calls an implementation. An implementation raises only for
division by zero (E2101) and for timestamps and durations out of range (E2102). Integers wrap at 64 bits.

The tables list every supported pair of operand types (docs/reference/language/expressions.md#arithmetic).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from vedette.errors import QueryError
from vedette.language.functions import arithmetic
from vedette.language.types import (
    ANY_VALUE,
    DURATION,
    FLOAT,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    union_of,
)
from vedette.language.value_kinds import CLASS_BY_KIND, kind_of_value

__all__ = ["ARITHMETIC", "negation_for", "negation_type", "operator_for", "result_type"]

BinaryFunction: TypeAlias = Callable[[Any, Any], Any]
_LIST = list_of(ANY_VALUE)

_TABLE: dict[str, dict[tuple[str, str], tuple[Type, BinaryFunction]]] = {
    "+": {
        ("Int", "Int"): (INT, arithmetic.add_ints),
        ("Int", "Float"): (FLOAT, arithmetic.add_floats),
        ("Float", "Int"): (FLOAT, arithmetic.add_floats),
        ("Float", "Float"): (FLOAT, arithmetic.add_floats),
        ("Timestamp", "Duration"): (TIMESTAMP, arithmetic.add_temporal),
        ("Duration", "Timestamp"): (TIMESTAMP, arithmetic.add_temporal),
        ("Duration", "Duration"): (DURATION, arithmetic.add_temporal),
        ("Timestamp", "Int"): (TIMESTAMP, arithmetic.add_milliseconds),
        ("Duration", "Int"): (DURATION, arithmetic.add_milliseconds),
        ("Int", "Timestamp"): (TIMESTAMP, arithmetic.milliseconds_plus),
        ("Int", "Duration"): (DURATION, arithmetic.milliseconds_plus),
        ("String", "String"): (STRING, arithmetic.concatenate),
        ("List", "List"): (_LIST, arithmetic.concatenate),
    },
    "-": {
        ("Int", "Int"): (INT, arithmetic.subtract_ints),
        ("Int", "Float"): (FLOAT, arithmetic.subtract_floats),
        ("Float", "Int"): (FLOAT, arithmetic.subtract_floats),
        ("Float", "Float"): (FLOAT, arithmetic.subtract_floats),
        ("Timestamp", "Duration"): (TIMESTAMP, arithmetic.subtract_temporal),
        ("Timestamp", "Timestamp"): (DURATION, arithmetic.subtract_temporal),
        ("Duration", "Duration"): (DURATION, arithmetic.subtract_temporal),
        ("Timestamp", "Int"): (TIMESTAMP, arithmetic.subtract_milliseconds),
        ("Duration", "Int"): (DURATION, arithmetic.subtract_milliseconds),
    },
    "*": {
        ("Int", "Int"): (INT, arithmetic.multiply_ints),
        ("Int", "Float"): (FLOAT, arithmetic.multiply_floats),
        ("Float", "Int"): (FLOAT, arithmetic.multiply_floats),
        ("Float", "Float"): (FLOAT, arithmetic.multiply_floats),
        ("Duration", "Int"): (DURATION, arithmetic.multiply_durations),
        ("Int", "Duration"): (DURATION, arithmetic.multiply_durations),
    },
    "/": {
        ("Int", "Int"): (INT, arithmetic.divide_ints),
        ("Int", "Float"): (FLOAT, arithmetic.divide_floats),
        ("Float", "Int"): (FLOAT, arithmetic.divide_floats),
        ("Float", "Float"): (FLOAT, arithmetic.divide_floats),
        ("Duration", "Int"): (DURATION, arithmetic.divide_duration),
        ("Duration", "Duration"): (INT, arithmetic.divide_durations),
    },
    "%": {
        ("Int", "Int"): (INT, arithmetic.remainder_ints),
        ("Int", "Float"): (FLOAT, arithmetic.remainder_floats),
        ("Float", "Int"): (FLOAT, arithmetic.remainder_floats),
        ("Float", "Float"): (FLOAT, arithmetic.remainder_floats),
    },
    "++": {
        ("String", "String"): (STRING, arithmetic.concatenate),
        ("List", "List"): (_LIST, arithmetic.concatenate),
    },
}
_NEGATIONS: dict[str, tuple[Type, Callable[[Any], Any]]] = {
    "Int": (INT, arithmetic.negate_int),
    "Float": (FLOAT, arithmetic.negate_float),
    "Duration": (DURATION, arithmetic.negate_duration),
}
ARITHMETIC = frozenset(_TABLE)
_BY_CLASS: dict[str, dict[tuple[type, type], BinaryFunction]] = {
    op: {(CLASS_BY_KIND[left], CLASS_BY_KIND[right]): run for (left, right), (_, run) in rows.items()}
    for op, rows in _TABLE.items()
}
_NEGATIONS_BY_CLASS = {CLASS_BY_KIND[kind]: run for kind, (_, run) in _NEGATIONS.items()}


def result_type(op: str, left: Type, right: Type) -> Type | None:
    """Return the type of `left op right`, or None if the operator does not accept these types.

    With a null operand the result is Null. A union is accepted if one of its members is; the value is checked at run
    time.
    """
    rows = _TABLE[op]
    exact = rows.get((left.kind, right.kind))
    if exact is not None:
        return left if exact[0] is _LIST and left == right else exact[0]
    lefts, rights = _kinds(left), _kinds(right)
    results = {
        row[0]
        for pair, row in rows.items()
        if (lefts is None or pair[0] in lefts) and (rights is None or pair[1] in rights)
    }
    if not results:
        return None
    if "Null" in (left.kind, right.kind):
        return NULL
    if len(results) > 1 and "Any" in (left.kind, right.kind):
        return ANY_VALUE
    return union_of(tuple(results))


def operator_for(op: str, left: Type, right: Type) -> BinaryFunction:
    """Return the function for these static types.

    For Any and unions the function chooses by the classes of the values and raises E2102 if none fits.
    """
    exact = _TABLE[op].get((left.kind, right.kind))
    return exact[1] if exact is not None else _dispatcher(op)


def negation_type(operand: Type) -> Type | None:
    """Return the type of unary minus, or None if the operand type is not accepted."""
    exact = _NEGATIONS.get(operand.kind)
    if exact is not None:
        return exact[0]
    if operand.kind in ("Null", "Any"):
        return operand
    results = {_NEGATIONS[member.kind][0] for member in operand.members if member.kind in _NEGATIONS}
    return union_of(tuple(results)) if results and operand.kind == "Union" else None


def negation_for(operand: Type) -> Callable[[Any], Any]:
    """Return unary minus for a static type; for Any and unions, a function that chooses by the value's class."""
    exact = _NEGATIONS.get(operand.kind)
    return exact[1] if exact is not None else _negate_any


# --- operands whose type is known only at run time ---------------------------------------------------------------


def _kinds(type_: Type) -> frozenset[str] | None:
    """Return the kinds that the operand may have; None for Any and for Null, which fits every kind."""
    if type_.kind in ("Any", "Null"):
        return None
    return frozenset(member.kind for member in type_.alternatives)


def _dispatcher(op: str) -> BinaryFunction:
    by_class = _BY_CLASS[op]

    def run(left: Any, right: Any) -> Any:
        found = by_class.get((left.__class__, right.__class__))
        if found is None:
            raise _invalid(op, f"types {kind_of_value(left)} and {kind_of_value(right)}")
        return found(left, right)

    return run


def _negate_any(operand: Any) -> Any:
    found = _NEGATIONS_BY_CLASS.get(operand.__class__)
    if found is None:
        raise _invalid("-", f"type {kind_of_value(operand)}")
    return found(operand)


def _invalid(op: str, operands: str) -> QueryError:
    return QueryError("E2102", f"Invalid operator '{op}' for {operands}")
