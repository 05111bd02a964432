"""What an operation of a policy applies to: elements of the graph, documents of external collections, or both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vedette.language.resolve.scope import AnalysisContext
from vedette.language.schema.model import Schema
from vedette.language.syntax.declarations import OperationPattern
from vedette.language.syntax.expressions import NamedType, OptionalType, TypeExpression, UnionType

__all__ = ["external_collections", "graph_operation"]

_READING = ("*", "MATCH")
_KEPT = ("id", "_id", "_type")
"""Attributes that every document has."""


def graph_operation(operation: OperationPattern, schema: Schema) -> OperationPattern | None:
    """The pattern without external collections; None if nothing is left."""
    _, second = operation.second or (None, None)
    if second is not None and any(_is_external(member, schema) for member in _members(second)):
        return None  # an error, which `external_collections` reports
    if operation.type is None:
        return operation
    members = tuple(_members(operation.type))
    graph = tuple(member for member in members if not _is_external(member, schema))
    if len(graph) == len(members):
        return operation
    if not graph:
        return None
    return replace(operation, type=graph[0] if len(graph) == 1 else UnionType(graph, span=operation.span))


def external_collections(operation: OperationPattern, analysis: AnalysisContext) -> frozenset[str] | None:
    """Names of the external collections; None: all collections, because the operation names no type."""
    schema, first, second = analysis.schema, operation.type, operation.second
    if first is None and second is None:
        bare = operation.variable
        if operation.operation not in _READING or bare in schema.nodes or bare in schema.edges:
            return frozenset()
        return None
    written = [type_ for type_ in (first, second[1] if second is not None else None) if type_ is not None]
    names = frozenset(
        member.name
        for type_ in written
        for member in _members(type_)
        if isinstance(member, NamedType) and _is_external(member, schema)
    )
    if names and operation.operation != "MATCH":
        text = f"{operation.operation} is not possible on {min(names)}: external collections only allow MATCH"
        analysis.report("E2009", text, operation.span)
    if names and operation.attribute in _KEPT:
        analysis.report(
            "E2002", f"'{operation.attribute}' cannot be hidden: every document has it", operation.span
        )
    return names


def _members(type_: TypeExpression) -> Iterator[TypeExpression]:
    match type_:
        case UnionType(members=members):
            for member in members:
                yield from _members(member)
        case OptionalType(inner=inner):
            yield from _members(inner)
        case _:
            yield type_


def _is_external(type_: TypeExpression, schema: Schema) -> bool:
    """True if the namespace of the name is not an ontology, so that it names a source."""
    if not isinstance(type_, NamedType) or type_.name in schema.nodes:
        return False
    front, separator, _ = type_.name.rpartition("::")
    return bool(separator) and front not in schema.ontologies
