"""Check and convert a value before it is stored in an attribute: type, null and value modifiers.

A validator is compiled once per attribute and runs for every value that SPAWN, LINK and SET write. It therefore tests
the most common case first: the value has the expected class, and the attribute has no modifiers.
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

__all__ = ["Validator", "compile_validator"]

Validator: TypeAlias = Callable[[Value], Value]
"""From the value that a statement sets to the value to store."""


def compile_validator(attribute: AttributeType, owner: str | None = None) -> Validator:
    """Compile the validator of an attribute.

    It converts Int to Float, Timestamp or Duration where declared. It raises AnalysisError E2003 (type) and
    ConstraintViolation E3002 (null for a required attribute), E3013 (null for another attribute that is not optional),
    E3005 range, E3006 in, E3007 length, E3008 match, E3009 format. For a reference it only checks that the value is an
    id (`str`); the graph checks the target. `owner` is the type that errors name, by default the declaring type.
    """
    errors = _AttributeErrors(attribute, owner or attribute.declared_in)
    classes, convert = python_classes(attribute.type), int_converter(attribute.type)
    predicates = tuple(compile_predicate(modifier, attribute.type) for modifier in attribute.value_modifiers)
    convert_or_fail = _convert_or_fail(convert, errors)
    accept = (
        _check_class(classes[0], convert_or_fail)
        if len(classes) == 1
        else _check_classes(classes, convert_or_fail)
    )
    return _check_predicates(accept, predicates, errors) if predicates else accept


class _AttributeErrors:
    """Builds the errors about one attribute."""

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
        """Return the error for a value of the wrong type."""
        name, expected = self.attribute.name, describe(self.attribute.type)
        text = (
            f"attribute '{name}' of type '{self.owner}' is declared {expected}, "
            f"not {kind_of_value(value)}: {format_for_error(value)} does not fit"
        )
        return AnalysisError(
            "E2003", text, fields={"type": self.owner, "attribute": name, "value": format_for_error(value)}
        )

    def check_null(self) -> None:
        """Raise if the attribute must not be null."""
        if self.attribute.optional:
            return
        if self.attribute.required:
            raise self.violation("E3002", "is required and cannot be null", None)
        declared = describe(self.attribute.type)
        raise self.violation("E3013", f"cannot be null: it is declared {declared}, not {declared}?", None)


def _check_class(expected: type, convert_or_fail: Validator) -> Validator:
    def check(value: Value) -> Value:
        return value if value.__class__ is expected else convert_or_fail(value)

    return check


def _check_classes(expected: tuple[type, ...], convert_or_fail: Validator) -> Validator:
    def check(value: Value) -> Value:
        return value if value.__class__ in expected else convert_or_fail(value)

    return check


def _convert_or_fail(convert: Callable[[int], Value] | None, errors: _AttributeErrors) -> Validator:
    """Return the validator of values that do not have an expected class: null, an Int to convert, or an error."""

    def convert_or_fail(value: Value) -> Value:
        if value is None:
            errors.check_null()
            return None
        if convert is not None and type(value) is int:
            try:
                return convert(value)
            except OverflowError:
                raise errors.mismatch(value) from None
        raise errors.mismatch(value)

    return convert_or_fail


def _check_predicates(
    accept: Validator, predicates: tuple[ValuePredicate, ...], errors: _AttributeErrors
) -> Validator:
    """Value modifiers are not applied to null."""

    def check(value: Value) -> Value:
        value = accept(value)
        if value is not None:
            for code, passes, requirement in predicates:
                if not passes(value):
                    raise errors.violation(code, f"{requirement}, not {format_for_error(value)}", value)
        return value

    return check
