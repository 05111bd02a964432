"""What a value must be before it may be stored in an attribute: its type, null, and the value modifiers.

A check is compiled once per attribute and runs for every value that SPAWN, LINK and SET write, so the common case comes
first: the class is the expected one and there is nothing more to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from vedette.errors import AnalysisError, ConstraintViolation
from vedette.language.schema.conversion import int_converter, python_classes
from vedette.language.schema.model import AttributeType
from vedette.language.schema.modifier_predicates import ValuePredicate, compile_predicate
from vedette.language.types import describe
from vedette.language.value_kinds import format_for_error, kind_of_value
from vedette.values import Value

__all__ = ["Validator", "compile_validator", "missing_required"]

Validator: TypeAlias = Callable[[Value], Value]


def compile_validator(attribute: AttributeType, owner: str | None = None) -> Validator:
    """A validator: takes the value that a statement sets, returns the value to store.

    Converts Int to Float, Timestamp or Duration where declared. Raises AnalysisError E2003 (type), ConstraintViolation
    E3002 (null for a required attribute), E3013 (null for another non-optional one), E3005 range, E3006 in,
    E3007 length, E3008 match, E3009 format. A reference is only checked to be an id (`str`): the graph looks at the
    target. `owner` is the type that errors name, by default the declaring one. An attribute that is left out is not
    the business of the validator: the graph takes the default or null, or raises `missing_required`.
    """
    place = _AttributeErrors(attribute, owner or attribute.declared_in)
    classes, convert = python_classes(attribute.type), int_converter(attribute.type)
    tests = tuple(compile_predicate(modifier, attribute.type) for modifier in attribute.value_modifiers)
    accept = (
        _one_class(classes, convert, place) if len(classes) == 1 else _classes_of(classes, convert, place)
    )
    return _with_tests(accept, tests, place) if tests else accept


def missing_required(attribute: AttributeType, owner: str | None = None) -> ConstraintViolation:
    """E3002 for a required attribute without a default that SPAWN or LINK leaves out."""
    return _AttributeErrors(attribute, owner or attribute.declared_in).violation(
        "E3002", "is required: give it a value", None
    )


class _AttributeErrors:
    """Which attribute an error is about."""

    __slots__ = ("attribute", "owner")

    def __init__(self, attribute: AttributeType, owner: str) -> None:
        self.attribute = attribute
        self.owner = owner

    def violation(self, code: str, problem: str, value: Value) -> ConstraintViolation:
        name = self.attribute.name
        fields = {"type": self.owner, "attribute": name, "value": format_for_error(value)}
        return ConstraintViolation(
            code, f"attribute '{name}' of type '{self.owner}' {problem}", fields=fields
        )

    def mismatch(self, value: Value) -> AnalysisError:
        """A value of a wrong type."""
        name, expected = self.attribute.name, describe(self.attribute.type)
        text = (
            f"attribute '{name}' of type '{self.owner}' is declared {expected}, "
            f"not {kind_of_value(value)}: {format_for_error(value)} does not fit"
        )
        raise AnalysisError(
            "E2003", text, fields={"type": self.owner, "attribute": name, "value": format_for_error(value)}
        )

    def null(self) -> None:
        """Null where it is legal; raises where it is not."""
        if self.attribute.optional:
            return
        if self.attribute.required:
            raise self.violation("E3002", "is required and cannot be null", None)
        declared = describe(self.attribute.type)
        raise self.violation("E3013", f"cannot be null: it is declared {declared}, not {declared}?", None)


def _one_class(
    classes: tuple[type, ...], convert: Callable[[int], Value] | None, place: _AttributeErrors
) -> Validator:
    expected = classes[0]
    other = _convert_or_fail(convert, place)

    def check(value: Value) -> Value:
        return value if value.__class__ is expected else other(value)

    return check


def _classes_of(
    classes: tuple[type, ...], convert: Callable[[int], Value] | None, place: _AttributeErrors
) -> Validator:
    other = _convert_or_fail(convert, place)

    def check(value: Value) -> Value:
        return value if value.__class__ in classes else other(value)

    return check


def _convert_or_fail(convert: Callable[[int], Value] | None, place: _AttributeErrors) -> Validator:
    """What happens to a value that is not of an expected class: null, an Int to convert, or an error."""

    def other(value: Value) -> Value:
        if value is None:
            place.null()
            return None
        if convert is not None and type(value) is int:
            try:
                return convert(value)
            except OverflowError:
                raise place.mismatch(value) from None
        raise place.mismatch(value)

    return other


def _with_tests(accept: Validator, tests: tuple[ValuePredicate, ...], place: _AttributeErrors) -> Validator:
    """Value modifiers skip null."""

    def check(value: Value) -> Value:
        value = accept(value)
        if value is not None:
            for code, passes, wanted in tests:
                if not passes(value):
                    raise place.violation(code, f"{wanted}, not {format_for_error(value)}", value)
        return value

    return check
