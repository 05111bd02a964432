"""Integrity checks of single operations: unique values, references, edge targets, cardinalities, deletion."""

from __future__ import annotations

from typing import Any

from vedette.element import Element, View
from vedette.errors import AnalysisError, ConstraintViolation, MutationError
from vedette.graph.type_layout import TypeLayout
from vedette.language.schema.model import EdgeType, Schema
from vedette.language.types import Type

__all__ = [
    "CASCADE_DEPTH",
    "CASCADE_SIZE",
    "check_edge",
    "check_references",
    "check_targets",
    "check_uniques",
    "degree",
    "existing_edge",
    "has_type",
    "nodes_to_delete",
]

CASCADE_DEPTH = 100
CASCADE_SIZE = 10_000


# --- values -----------------------------------------------------------------------------------------------------


def check_uniques(view: View, table: TypeLayout, element: Element) -> None:
    for owner, attribute, position in table.uniques:
        value = element.values[position]
        if value is None:
            continue
        for other in view.lookup(owner, attribute, value):
            if other.id != element.id:
                raise ConstraintViolation(
                    "E3003",
                    f"Attribute '{attribute}' of '{owner}' is unique: {_shown(value)} is taken",
                    fields={"type": table.name, "attribute": attribute},
                )


def check_references(
    view: View, schema: Schema, table: TypeLayout, element: Element, old: Element | None
) -> None:
    """A newly set reference must exist. A reference whose node was deleted later may stay."""
    for attribute, type_, position in table.references:
        id = element.values[position]
        if id is None or (old is not None and old.values[position] == id):
            continue
        target = view.get(id)
        if target is None:
            text = f"#{id} was not found: nothing is bound to it or has this id"
            raise MutationError("E3601", text, fields={"id": id})
        if not has_type(schema, target, type_):
            raise _mismatch(type_, f"Attribute '{attribute}' refers to {type_}, {id} is {target.type}", id)


def _mismatch(wanted: Type, text: str, id: str) -> AnalysisError:
    code = "E3501" if wanted.kind == "Edge" else "E2003"
    return AnalysisError(code, f"{text} (type mismatch)", fields={"id": id})


def has_type(schema: Schema, element: Element, type_: Type) -> bool:
    """True if the element is valid where this type is expected."""
    if type_.kind == "Edge":
        return element.targets is not None and (type_.names is None or element.type in type_.names)
    if type_.kind == "Union":
        return any(has_type(schema, element, member) for member in type_.members)
    return element.targets is None and schema.is_subtype(element.type, type_.names)


# --- edges ------------------------------------------------------------------------------------------------------


def check_targets(view: View, schema: Schema, edge: EdgeType, targets: tuple[str, ...]) -> None:
    for parameter, id in zip(edge.parameters, targets, strict=True):
        element = view.get(id)
        if element is None:
            text = f"#{id} was not found: nothing is bound to it or has this id"
            raise MutationError("E3601", text, fields={"id": id})
        if not has_type(schema, element, parameter.type):
            text = f"'{edge.name}' joins {parameter.type} as '{parameter.name}', {id} is {element.type}"
            raise _mismatch(parameter.type, text, id)


def check_edge(view: View, edge: EdgeType, targets: tuple[str, ...]) -> None:
    if (edge.no_self or edge.acyclic) and len(set(targets)) < len(targets):
        raise ConstraintViolation("E3012", f"'{edge.name}' must not join an element to itself (no_self)")
    if edge.unique and existing_edge(view, edge, targets) is not None:
        raise ConstraintViolation("E3003", f"An edge '{edge.name}' with these targets exists: it is unique")
    if edge.acyclic and _reaches(view, edge, targets[1], targets[0]):
        raise ConstraintViolation("E3011", f"This edge would close a cycle: '{edge.name}' is acyclic")
    _check_cardinality(view, edge, targets)


def existing_edge(view: View, edge: EdgeType, targets: tuple[str, ...]) -> Element | None:
    for candidate in view.edges_at(edge.name, 0, targets[0]):
        if candidate.targets == targets:
            return candidate
    if edge.symmetric:
        turned = targets[::-1]
        for candidate in view.edges_at(edge.name, 0, turned[0]):
            if candidate.targets == turned:
                return candidate
    return None


def _reaches(view: View, edge: EdgeType, start: str, goal: str) -> bool:
    seen = {start}
    pending = [start]
    while pending:
        id = pending.pop()
        if id == goal:
            return True
        for candidate in view.edges_at(edge.name, 0, id):
            assert candidate.targets is not None
            following = candidate.targets[1]
            if following not in seen:
                seen.add(following)
                pending.append(following)
    return False


def degree(view: View, edge: EdgeType, position: int, id: str) -> int:
    """The number of edges of the type at the position; at either end if the edge is symmetric."""
    count = sum(1 for _ in view.edges_at(edge.name, position, id))
    if edge.symmetric:
        count += sum(1 for _ in view.edges_at(edge.name, 1 - position, id))
    return count


def _check_cardinality(view: View, edge: EdgeType, targets: tuple[str, ...]) -> None:
    for position, cardinality in enumerate(edge.cardinalities):
        if cardinality is None or cardinality.high is None:
            continue
        ends = targets if edge.symmetric else (targets[position],)
        for id in ends:
            if degree(view, edge, position, id) >= cardinality.high:
                raise ConstraintViolation(
                    "E3010",
                    f"cardinality exceeded: '{id}' may have at most {cardinality.high} '{edge.name}' "
                    f"as '{edge.parameters[position].name}'",
                    fields={"edge": edge.name, "id": id, "limit": cardinality.high},
                )


# --- deletion ---------------------------------------------------------------------------------------------------


def nodes_to_delete(view: View, schema: Schema, node: Element, cascade: bool | None) -> list[Element]:
    """The nodes that are deleted with this one, itself first. `prevent` on any of them rejects the deletion."""
    to_delete = {node.id: node}
    pending = [(node, 0)]
    while pending:
        each, depth = pending.pop(0)
        for other in _cascaded_nodes(view, schema, each, cascade):
            if other.id in to_delete:
                continue
            if depth + 1 > CASCADE_DEPTH:
                raise MutationError("E3303", f"The deletion cascades more than {CASCADE_DEPTH} levels deep")
            to_delete[other.id] = other
            if len(to_delete) > CASCADE_SIZE:
                raise MutationError("E3304", f"The deletion cascades to more than {CASCADE_SIZE:,} elements")
            pending.append((other, depth + 1))
    return list(to_delete.values())


def _cascaded_nodes(view: View, schema: Schema, node: Element, cascade: bool | None) -> list[Element]:
    found = []
    for edge in view.incident(node.id):
        kind = schema.edges[edge.type]
        assert edge.targets is not None
        if kind.arity != 2:
            continue
        for position in (0, 1):
            if edge.targets[position] != node.id:
                continue
            action = _action(kind, position, cascade)
            if action == "prevent":
                text = f"Deletion restricted by edge type '{kind.name}': unlink {edge.id} first"
                raise MutationError("E3302", text, fields={"edge": kind.name, "id": edge.id})
            other = view.get(edge.targets[1 - position])
            if action == "cascade" and other is not None and other.targets is None:
                found.append(other)
    return found


def _action(kind: EdgeType, position: int, cascade: bool | None) -> str:
    """The referential action for the other end when the element at this position is deleted."""
    declared = kind.on_kill_source if position == 0 else kind.on_kill_target
    if declared == "prevent" or cascade is None:
        return declared
    if cascade:
        return "cascade" if position == 0 else declared
    return "unlink"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
