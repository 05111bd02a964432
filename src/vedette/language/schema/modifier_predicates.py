"""Compile the value modifiers range, in, length, match and format into predicates.

`attributes.py` compiles every modifier to check its declaration, so a schema contains only modifiers that compile;
`validator.py` compiles them for use. docs/reference/language/ontology.md#attributes describes the modifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from vedette.language.functions.formats import FORMATS
from vedette.language.schema.constant_expressions import constant_value
from vedette.language.schema.conversion import NotConvertible, convert
from vedette.language.schema.regex_automaton import MAX_TEXT_CHARACTERS, compile_regex
from vedette.language.syntax.declarations import Modifier
from vedette.language.syntax.expressions import Expression
from vedette.language.types import Type, describe
from vedette.language.value_kinds import format_for_error
from vedette.values import Value

__all__ = ["KINDS_BY_MODIFIER", "InvalidModifier", "ValuePredicate", "compile_predicate"]


class ValuePredicate(NamedTuple):
    code: str
    """Error code for a value that does not satisfy the predicate."""
    passes: Callable[[Any], bool]
    requirement: str
    """The start of the error text, such as `must be at least 0`."""


class InvalidModifier(ValueError):
    """The modifier does not apply to the type, or no value can satisfy it. The text says why."""


_ORDERED = frozenset({"Int", "Float", "Timestamp", "Duration"})
_TEXT = frozenset({"String"})
KINDS_BY_MODIFIER: dict[str, frozenset[str]] = {
    ">=": _ORDERED,
    ">": _ORDERED,
    "<=": _ORDERED,
    "<": _ORDERED,
    "in": _ORDERED | {"String", "Bool", "ID"},
    "length": _TEXT,
    "match": _TEXT,
    "format": _TEXT,
}
"""The kinds of attributes to which each value modifier applies."""

_BOUNDS: dict[str, tuple[Callable[[Any], Callable[[Any], bool]], str]] = {
    ">=": (lambda bound: lambda value: value >= bound, "at least"),
    ">": (lambda bound: lambda value: value > bound, "greater than"),
    "<=": (lambda bound: lambda value: value <= bound, "at most"),
    "<": (lambda bound: lambda value: value < bound, "less than"),
}


def compile_predicate(modifier: Modifier, type_: Type) -> ValuePredicate:
    """Return the predicate of one modifier for values of the type; raises InvalidModifier."""
    kinds = {member.kind for member in type_.alternatives}
    if not kinds <= KINDS_BY_MODIFIER[modifier.name]:
        legal = ", ".join(sorted(KINDS_BY_MODIFIER[modifier.name]))
        raise InvalidModifier(f"[{modifier.name}] is for {legal}, not for {describe(type_)}")
    match modifier.name:
        case "in":
            return _in(cast("tuple[Expression, ...]", modifier.value), type_)
        case "length":
            return _length(*cast("tuple[int, int]", modifier.value))
        case "match":
            return _match(cast(str, modifier.value))
        case "format":
            return _format(cast(str, modifier.value))
        case _:
            return _bound(modifier, type_)


def _bound(modifier: Modifier, type_: Type) -> ValuePredicate:
    if type_.kind == "Union" and not all(member.is_numeric for member in type_.members):
        raise InvalidModifier(f"a range needs one type, not {describe(type_)}")
    against, words = _BOUNDS[modifier.name]
    bound = cast(Any, modifier.value)
    if type_.kind in ("Timestamp", "Duration"):
        bound = _temporal_bound(bound, type_)
    return ValuePredicate("E3005", against(bound), f"must be {words} {format_for_error(bound)} (range)")


def _temporal_bound(milliseconds: Any, type_: Type) -> Any:
    try:
        return convert(milliseconds, type_)
    except NotConvertible:
        raise InvalidModifier(
            f"{milliseconds} is not a number of milliseconds of a {describe(type_)}"
        ) from None


def _in(expressions: tuple[Expression, ...], type_: Type) -> ValuePredicate:
    if not expressions:
        raise InvalidModifier("[in] lists no values, so no value could be stored")
    values = [_listed(constant_value(expression), type_) for expression in expressions]
    return ValuePredicate("E3006", frozenset(values).__contains__, f"must be in {format_for_error(values)}")


def _listed(value: Value, type_: Type) -> Any:
    try:
        return convert(value, type_)
    except NotConvertible:
        raise InvalidModifier(
            f"[in] lists {format_for_error(value)}, which is not of type {describe(type_)}"
        ) from None


def _length(low: int, high: int) -> ValuePredicate:
    if not 0 <= low <= high:
        raise InvalidModifier(f"no string has a length of {low}..{high}")
    return ValuePredicate(
        "E3007", lambda text: low <= len(text) <= high, f"must have a length of {low}..{high} characters"
    )


def _match(pattern: str) -> ValuePredicate:
    """Raises RegexError for a pattern that the supported syntax does not include."""
    matches = compile_regex(pattern).matches
    return ValuePredicate(
        "E3008",
        lambda text: len(text) <= MAX_TEXT_CHARACTERS and matches(text),
        f"must match the pattern {format_for_error(pattern)}",
    )


def _format(name: str) -> ValuePredicate:
    if name not in FORMATS:
        raise InvalidModifier(f"there is no format '{name}'; there are {', '.join(FORMATS)}")
    return ValuePredicate("E3009", FORMATS[name], f"must have the format {name}")
