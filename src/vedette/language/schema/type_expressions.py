"""Resolve the type expressions of declarations and expand aliases (docs/reference/language/ontology.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vedette.language.schema.draft import SchemaDraft
from vedette.language.schema.modifiers import normalize_modifiers, override_modifiers
from vedette.language.syntax.declarations import Modifier
from vedette.language.syntax.expressions import (
    AnyType,
    EdgeReferenceType,
    NamedType,
    OptionalType,
    TypeExpression,
    UnionType,
)
from vedette.language.types import ANY_VALUE, SCALARS, Type, edge_type, node_type, union_of

__all__ = ["OPTIONAL_MARKER", "DeclaredType", "DeclaredTypeResolver"]

OPTIONAL_MARKER = Modifier("optional")
"""Stored among the modifiers of an alias whose type is optional (`T?`)."""
_MAX_ALIAS_DEPTH = 100
"""Aliases that may refer to each other in a chain; expanding one recurses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredType:
    """A resolved type expression. A type with an error is Any; the error was reported."""

    type: Type
    optional: bool = False
    modifiers: tuple[Modifier, ...] = ()
    """From the aliases that were expanded, the outermost last."""


_UNKNOWN = DeclaredType(type=ANY_VALUE)


class DeclaredTypeResolver:
    """Resolves type expressions against a draft. Each alias is expanded once."""

    def __init__(self, draft: SchemaDraft) -> None:
        self._draft = draft
        self._expanded: dict[str, DeclaredType] = {}
        self._expanding: list[str] = []

    def aliases(self) -> dict[str, tuple[Type, tuple[Modifier, ...]]]:
        """Return the aliases of the draft in the form that a schema stores."""
        found = {}
        for name in self._draft.aliases:
            resolved = self._alias(name)
            marks = (OPTIONAL_MARKER,) if resolved.optional else ()
            found[name] = (resolved.type, marks + resolved.modifiers)
        return found

    def resolve(self, expression: TypeExpression) -> DeclaredType:
        match expression:
            case NamedType():
                return self._named(expression)
            case AnyType():
                return DeclaredType(type=node_type())
            case EdgeReferenceType():
                return self._edge_reference(expression)
            case OptionalType():
                return replace(self.resolve(expression.inner), optional=True)
            case UnionType():
                return self._union(expression)

    def _named(self, expression: NamedType) -> DeclaredType:
        name = self._draft.unqualified_name(expression.name)
        if name in SCALARS:
            return DeclaredType(type=SCALARS[name])
        if self._draft.is_node(name):
            return DeclaredType(type=node_type(name))
        if self._draft.is_alias(name):
            return self._alias(name)
        if self._draft.is_edge(name):
            self._draft.report("E2010", f"'{name}' is an edge type; write edge<{name}>", expression.span)
        else:
            self._draft.report("E2001", f"Unknown type '{name}'", expression.span)
        return _UNKNOWN

    def _edge_reference(self, expression: EdgeReferenceType) -> DeclaredType:
        if expression.edge is None:
            return DeclaredType(type=edge_type())
        name = self._draft.unqualified_name(expression.edge)
        if not self._draft.is_edge(name):
            self._draft.report("E2001", f"Unknown edge type '{name}'", expression.span)
            return _UNKNOWN
        return DeclaredType(type=edge_type(name))

    def _union(self, expression: UnionType) -> DeclaredType:
        members = [self.resolve(member) for member in expression.members]
        if any(member.type.kind == "Any" for member in members):
            return _UNKNOWN
        if any(member.modifiers for member in members):
            text = "an alias with modifiers cannot be part of a union: they would apply to one member only"
            self._draft.report("E2010", text, expression.span)
        type_ = union_of(tuple(member.type for member in members))
        kinds = {member.kind for member in type_.members}
        if kinds & {"Node", "Edge"} and kinds & {"String", "ID"}:
            text = f"{type_} mixes references with text: an id could not be distinguished from a string"
            self._draft.report("E2010", text, expression.span)
        return DeclaredType(type=type_, optional=any(member.optional for member in members))

    # --- aliases ------------------------------------------------------------------------------------------------

    def _alias(self, name: str) -> DeclaredType:
        if name not in self._draft.aliases:
            return _from_schema(*self._draft.schema.aliases[name])
        if name not in self._expanded:
            self._expanded[name] = self._expand(name)
        return self._expanded[name]

    def _expand(self, name: str) -> DeclaredType:
        declaration = self._draft.aliases[name]
        if name in self._expanding or len(self._expanding) >= _MAX_ALIAS_DEPTH:
            path = " = ".join([*self._expanding[-5:], name])
            text = f"the type '{name}' is defined by itself: {path}"
            if name not in self._expanding:
                text = f"the type '{name}' is an alias of aliases more than {_MAX_ALIAS_DEPTH} levels deep"
            self._draft.report("E2010", text, declaration.span)
            return _UNKNOWN
        self._expanding.append(name)
        inner = self.resolve(declaration.type)
        self._expanding.pop()
        own = normalize_modifiers(declaration.modifiers, self._draft.report)
        if own and _is_union(declaration.type, inner.type):
            self._draft.report("E2010", f"the union type '{name}' cannot have modifiers", own[0].span)
        return replace(inner, modifiers=override_modifiers(inner.modifiers, own))


def _from_schema(type_: Type, modifiers: tuple[Modifier, ...]) -> DeclaredType:
    return DeclaredType(
        type=type_,
        optional=OPTIONAL_MARKER in modifiers,
        modifiers=tuple(modifier for modifier in modifiers if modifier != OPTIONAL_MARKER),
    )


def _is_union(expression: TypeExpression, type_: Type) -> bool:
    while isinstance(expression, OptionalType):
        expression = expression.inner
    return isinstance(expression, UnionType) or type_.kind == "Union"
