"""Resolve type names, and find an attribute in the types that an element may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vedette.language.diagnostics import Span
from vedette.language.resolve.scope import AnalysisContext
from vedette.language.schema.model import AttributeType, EdgeType, NodeType
from vedette.language.syntax.expressions import (
    AnyType,
    EdgeReferenceType,
    NamedType,
    OptionalType,
    TypeExpression,
)
from vedette.language.types import ANY_VALUE, SCALARS, Type, edge_type, node_type, union_of

__all__ = ["AttributeLookup", "UnknownAttribute", "concrete_types", "find_attribute", "resolve_type"]


class UnknownAttribute(Exception):
    """No type of the element has the attribute. The text names attribute and type (E2002)."""


class AttributeLookup(NamedTuple):
    """Positions of an attribute in the values of each type that a variable may have."""

    index_by_type: dict[str, int]
    """Index in the element's values, by concrete type. A type without the attribute is missing."""
    declarations: tuple[AttributeType, ...]
    """The different declarations of the attribute in these types."""


def resolve_type(analysis: AnalysisContext, expression: TypeExpression) -> Type:
    """Return the type; report an unknown name (E2001) and return any type instead."""
    match expression:
        case AnyType():
            return node_type()
        case EdgeReferenceType(edge=name):
            if name is not None and name not in analysis.schema.edges:
                analysis.report("E2001", f"Unknown edge type '{name}'", expression.span)
                return edge_type()
            return edge_type() if name is None else edge_type(name)
        case OptionalType(inner=inner):
            return resolve_type(analysis, inner)
        case NamedType(name=name):
            return _named(analysis, name, expression.span)
        case _:
            return union_of(tuple(resolve_type(analysis, member) for member in expression.members))


def _named(analysis: AnalysisContext, name: str, span: Span) -> Type:
    schema = analysis.schema
    ontology, _, bare = name.rpartition("::")
    if ontology in schema.ontologies and name not in schema.nodes:
        name = bare
    if name in schema.nodes:
        return node_type(name)
    if name in schema.edges:
        return edge_type(name)
    if name in SCALARS:
        return SCALARS[name]
    if name in schema.aliases:
        return schema.aliases[name][0]
    analysis.report("E2001", f"Unknown type '{name}'{_suggest(name, schema.nodes)}", span)
    return ANY_VALUE


def _suggest(name: str, known: Mapping[str, object]) -> str:
    similar = [
        other for other in known if other.lower() == name.lower() or other.lower() == name.lower().rstrip("s")
    ]
    return f" (did you mean '{similar[0]}'?)" if similar else ""


def concrete_types(analysis: AnalysisContext, type_: Type) -> tuple[str, ...]:
    """Return the concrete types of the elements that a variable of this type may hold."""
    if any(name.startswith("_") for name in type_.names or ()):
        analysis.uses_layer0 = True
    if type_.kind == "Edge":
        if type_.names is None:
            return tuple(name for name, edge in analysis.schema.edges.items() if not edge.is_layer0)
        return tuple(sorted(type_.names))
    if type_.kind == "Union":
        return tuple(name for member in type_.members for name in concrete_types(analysis, member))
    return analysis.schema.concrete_subtypes(type_.names)


def find_attribute(analysis: AnalysisContext, type_: Type, name: str) -> AttributeLookup:
    """Find the attribute in the types that an element of `type_` may have; raises UnknownAttribute.

    For a node type, one subtype with the attribute is enough. For a union, every member needs it
    (docs/reference/language/patterns.md#where).
    """
    if type_.kind == "Union":
        index_by_type: dict[str, int] = {}
        declarations: list[AttributeType] = []
        for member in type_.members:
            found = find_attribute(analysis, member, name)
            index_by_type.update(found.index_by_type)
            declarations.extend(found.declarations)
        return AttributeLookup(index_by_type, tuple(declarations))
    schema = analysis.schema
    if type_.kind == "Edge":
        return _lookup([schema.edges[edge] for edge in concrete_types(analysis, type_)], type_, name)
    for member_name in sorted(type_.names or ()):
        subtypes = [schema.nodes[child] for child in schema.nodes[member_name].descendants]
        if not any(name in node.attributes for node in subtypes):
            raise UnknownAttribute(f"Unknown attribute '{name}' on type '{member_name}'")
    return _lookup([schema.nodes[child] for child in concrete_types(analysis, type_)], type_, name)


def _lookup(types: list[NodeType] | list[EdgeType], type_: Type, name: str) -> AttributeLookup:
    having = [each for each in types if name in each.attributes]
    if not having:
        raise UnknownAttribute(f"Unknown attribute '{name}' on type '{type_}'")
    index_by_type = {each.name: each.layout[name] for each in having}
    declarations = {id(a): a for a in (each.attributes[name] for each in having)}
    return AttributeLookup(index_by_type, tuple(declarations.values()))
