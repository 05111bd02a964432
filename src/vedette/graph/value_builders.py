"""Builds the values of a new element: the assigned value, else the default, else null."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from vedette.graph.type_layout import TypeLayout
from vedette.language.compile.execution_context import Row
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import AnalysisContext, ExpressionSite, Scope
from vedette.language.resolve.tree import FixedValue, ResolvedExpression
from vedette.language.schema.model import AttributeType
from vedette.language.schema.validator import Validator

__all__ = ["Builder", "compile_value_builders", "missing_value_warnings"]

Builder: TypeAlias = Callable[[Row], Any]


def compile_value_builders(
    table: TypeLayout, assignments: Sequence[tuple[str, ResolvedExpression]], compiler: PatternCompiler
) -> list[Builder]:
    """One builder per position of the type's layout."""
    given = dict(assignments)
    builders: list[Builder] = []
    for attribute, check in zip(table.attributes, table.checks, strict=True):
        if attribute.name in given:
            builders.append(_checked(compiler.compile_element_id(given[attribute.name]), check))
        elif attribute.default is not None:
            builders.append(_default(attribute, check, compiler))
        else:
            builders.append(_null)
    return builders


def missing_value_warnings(
    table: TypeLayout, assignments: Sequence[tuple[str, ResolvedExpression]]
) -> list[str]:
    """Warnings for attributes that are neither optional nor assigned and have no default: they will be null."""
    given = {name for name, _ in assignments}
    return [
        f"Attribute '{a.name}' of '{table.name}' is not given and has no default: it is null"
        for a in table.attributes
        if not a.optional and a.default is None and not a.required and a.name not in given
    ]


def _null(row: Row) -> None:
    return None


def _checked(value: CompiledExpression, check: Validator) -> Builder:
    return lambda row: check(value(row))


def _default(attribute: AttributeType, check: Validator, compiler: PatternCompiler) -> Builder:
    """Defaults are constant expressions, evaluated when an element is created."""
    assert attribute.default is not None
    analysis = AnalysisContext(compiler.context.schema, "")
    resolver = PatternResolver(analysis, ExpressionSite(allows_actor=False))
    resolved = resolver.resolve(attribute.default, Scope(analysis))
    analysis.raise_if_any()
    if isinstance(resolved, FixedValue):
        value = check(resolved.value)
        return lambda row: value
    return _checked(compiler.compile_expression(resolved), check)
