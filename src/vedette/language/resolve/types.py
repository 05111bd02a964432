"""Type expressions ▸ types, and where the types of an element keep an attribute."""

from __future__ import annotations

from collections.abc import Mapping

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

__all__ = ["concrete_types", "find_attribute", "resolve_type"]


def resolve_type(analysis: AnalysisContext, expression: TypeExpression) -> Type:
    """The type that is meant; an unknown name is reported once and becomes `any`."""
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
    alike = [
        other for other in known if other.lower() == name.lower() or other.lower() == name.lower().rstrip("s")
    ]
    return f" (did you mean '{alike[0]}'?)" if alike else ""


def concrete_types(analysis: AnalysisContext, type_: Type) -> tuple[str, ...]:
    """The types that elements bound to a variable of this type can really have."""
    if any(name.startswith("_") for name in type_.names or ()):
        analysis.uses_layer0 = True
    if type_.kind == "Edge":
        if type_.names is None:
            return tuple(name for name, edge in analysis.schema.edges.items() if not edge.is_layer0)
        return tuple(sorted(type_.names))
    if type_.kind == "Union":
        return tuple(name for member in type_.members for name in concrete_types(analysis, member))
    return analysis.schema.concrete_subtypes(type_.names)


def find_attribute(
    analysis: AnalysisContext, type_: Type, name: str
) -> tuple[dict[str, int], tuple[AttributeType, ...]] | str:
    """Where each possible type keeps the attribute, and its declarations; or why it cannot be read.

    On a node type it is enough that the type or ANY subtype has it; of a union all members must (§2.5.10).
    """
    if type_.kind == "Union":
        places: dict[str, int] = {}
        declared: list[AttributeType] = []
        for member in type_.members:
            found = find_attribute(analysis, member, name)
            if isinstance(found, str):
                return found
            places.update(found[0])
            declared.extend(found[1])
        return places, tuple(declared)
    if type_.kind == "Edge":
        return _edge_places(analysis, type_, name)
    return _node_places(analysis, type_, name)


def _edge_places(
    analysis: AnalysisContext, type_: Type, name: str
) -> tuple[dict[str, int], tuple[AttributeType, ...]] | str:
    having = [analysis.schema.edges[edge] for edge in concrete_types(analysis, type_)]
    return _places(having, type_, name)


def _node_places(
    analysis: AnalysisContext, type_: Type, name: str
) -> tuple[dict[str, int], tuple[AttributeType, ...]] | str:
    schema = analysis.schema
    for member in sorted(type_.names or ()):
        below = [schema.nodes[child] for child in schema.nodes[member].descendants]
        if not any(name in node.attributes for node in below):
            return f"Unknown attribute '{name}' on type '{member}'"
    return _places([schema.nodes[child] for child in concrete_types(analysis, type_)], type_, name)


def _places(
    types: list[NodeType] | list[EdgeType], type_: Type, name: str
) -> tuple[dict[str, int], tuple[AttributeType, ...]] | str:
    having = [each for each in types if name in each.attributes]
    if not having:
        return f"Unknown attribute '{name}' on type '{type_}'"
    places = {each.name: each.layout[name] for each in having}
    return places, tuple({id(a): a for a in (each.attributes[name] for each in having)}.values())
