"""Build attribute types from declarations, and check that modifiers fit the type and defaults fit both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from vedette.errors import VedetteError
from vedette.language.diagnostics import Span
from vedette.language.schema.constant_expressions import (
    NotConstant,
    constant_type,
    constant_value,
    depends_on_clock,
)
from vedette.language.schema.conversion import is_constant_assignable
from vedette.language.schema.draft import SchemaDraft
from vedette.language.schema.model import AttributeType
from vedette.language.schema.modifier_predicates import KINDS_BY_MODIFIER, InvalidModifier, compile_predicate
from vedette.language.schema.modifiers import modifier_group, normalize_modifiers, override_modifiers
from vedette.language.schema.regex_parser import RegexError
from vedette.language.schema.type_expressions import DeclaredType, DeclaredTypeResolver
from vedette.language.schema.validator import compile_validator
from vedette.language.syntax.declarations import AttributeDeclaration, Modifier
from vedette.language.syntax.expressions import Expression
from vedette.language.types import Type, describe
from vedette.language.value_kinds import format_for_error

__all__ = ["build_attributes", "check_alias", "default_problem"]


def build_attributes(
    draft: SchemaDraft,
    resolver: DeclaredTypeResolver,
    declarations: Iterable[AttributeDeclaration],
    owner: str,
) -> dict[str, AttributeType]:
    """Build the attributes of one type. An attribute whose type has an error is left out."""
    built: dict[str, AttributeType] = {}
    for declaration in declarations:
        draft.reject_reserved_name(declaration.name, "attribute", declaration.span)
        if declaration.name in built:
            text = f"the attribute '{declaration.name}' of '{owner}' is declared twice"
            draft.report("E2005", text, declaration.span)
            continue
        attribute = _build(draft, resolver, declaration, owner)
        if attribute is not None:
            built[declaration.name] = attribute
    return built


def _build(
    draft: SchemaDraft, resolver: DeclaredTypeResolver, declaration: AttributeDeclaration, owner: str
) -> AttributeType | None:
    resolved = resolver.resolve(declaration.type)
    own = normalize_modifiers(declaration.modifiers, draft.report)
    if resolved.type.kind == "Any":
        return None
    effective = {
        modifier_group(modifier): modifier for modifier in override_modifiers(resolved.modifiers, own)
    }
    checks = tuple(modifier for modifier in effective.values() if modifier.name in KINDS_BY_MODIFIER)
    inherited_default = effective["default"].value if "default" in effective else None
    default = (
        declaration.default
        if declaration.default is not None
        else cast("Expression | None", inherited_default)
    )
    attribute = AttributeType(
        name=declaration.name,
        type=resolved.type,
        optional=resolved.optional,
        required="required" in effective,
        unique="unique" in effective,
        readonly="readonly" in effective,
        indexed="indexed" in effective or "unique" in effective,
        default=default,
        value_modifiers=checks,
        declared_in=owner,
        doc=declaration.doc,
    )
    _check(draft, attribute, resolved, own, declaration.span)
    return attribute


def _check(
    draft: SchemaDraft,
    attribute: AttributeType,
    resolved: DeclaredType,
    own: tuple[Modifier, ...],
    span: Span,
) -> None:
    where = {modifier_group(modifier): modifier.span for modifier in own}
    if attribute.required and attribute.optional:
        text = (
            f"the attribute '{attribute.name}' is {describe(resolved.type)}? and required: it cannot be both"
        )
        draft.report("E2010", text, where.get("required", span))
    sound = _check_bounds(draft, attribute, where.get("upper bound", where.get("lower bound", span)))
    for modifier in attribute.value_modifiers:
        if modifier_group(modifier) in where:
            sound = (
                _check_modifier(draft, modifier, attribute.type, where[modifier_group(modifier)]) and sound
            )
    if sound and attribute.default is not None:
        problem = default_problem(attribute)
        if problem is not None:
            draft.report("E2010", problem[0], problem[1] or span)


def check_alias(draft: SchemaDraft, type_: Type, modifiers: Iterable[Modifier]) -> None:
    """Report the modifiers of an alias that do not fit its type. Attributes of that alias are not checked again."""
    for modifier in modifiers:
        if modifier.name in KINDS_BY_MODIFIER and type_.kind != "Any":
            _check_modifier(draft, modifier, type_, modifier.span)


def _check_modifier(draft: SchemaDraft, modifier: Modifier, type_: Type, span: Span) -> bool:
    try:
        compile_predicate(modifier, type_)
    except RegexError as error:
        draft.report(
            "E2010",
            f"the pattern {format_for_error(cast(str, modifier.value))} cannot be used: {error}",
            span,
        )
    except NotConstant as error:
        draft.report("E2010", str(error), error.span)
    except InvalidModifier as error:
        draft.report("E2010", str(error), span)
    else:
        return True
    return False


def _check_bounds(draft: SchemaDraft, attribute: AttributeType, span: Span) -> bool:
    """Report bounds that no value can satisfy; then return False."""
    bounds = {modifier_group(modifier): modifier for modifier in attribute.value_modifiers}
    low, high = bounds.get("lower bound"), bounds.get("upper bound")
    if low is None or high is None:
        return True
    minimum, maximum = cast(Any, low.value), cast(Any, high.value)
    if minimum < maximum or (minimum == maximum and (low.name, high.name) == (">=", "<=")):
        return True
    text = f"no value of '{attribute.name}' is {low.name} {minimum} and {high.name} {maximum}"
    draft.report("E2010", text, span)
    return False


def default_problem(attribute: AttributeType) -> tuple[str, Span | None] | None:
    """Return why the attribute cannot store its default, and the span; None if it can."""
    default = attribute.default
    assert default is not None
    name, declared = attribute.name, describe(attribute.type)
    try:
        type_ = constant_type(default)
        if type_.kind != "Null" and attribute.type.is_reference:
            return (
                f"the attribute '{name}' is a reference, so its only possible default is null",
                default.span,
            )
        if not is_constant_assignable(type_, attribute.type):
            return (
                f"the default of '{name}' is {describe(type_)}, but the attribute is {declared}",
                default.span,
            )
        if not depends_on_clock(default):
            compile_validator(attribute)(constant_value(default))
    except NotConstant as error:
        return f"the default of '{name}': {error}", error.span
    except VedetteError as error:
        return f"the default of '{name}' cannot be stored: {error.text}", default.span
    return None
