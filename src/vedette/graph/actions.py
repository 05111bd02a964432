"""Compiles resolved actions to closures that write to a transaction.

Statements, rules and triggers all write through this module. If an actor is set, the writer's guard decides before
each operation whether it is allowed (policy ▸ type check ▸ apply).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from vedette.element import Element, View
from vedette.errors import AnalysisError, ConstraintViolation, MutationError
from vedette.graph import integrity
from vedette.graph.transaction import Transaction
from vedette.graph.type_layout import SchemaLayout
from vedette.graph.value_builders import Builder, compile_value_builders
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.compile.queries import RowQuery
from vedette.language.resolve import actions as mutations
from vedette.language.resolve.queries import outer_registers
from vedette.language.resolve.tree import ElementReference, VariableRef

__all__ = [
    "ActionWriter",
    "AffectedElement",
    "CompiledAction",
    "WriteGuard",
    "compile_action",
    "delete_element",
]


class WriteGuard(Protocol):
    """Decides whether the actor may do something; raises PolicyError if not."""

    def check(self, operation: str, element: Element, attribute: str | None = None) -> None: ...

    def can_see(self, element: Element) -> bool: ...

    def visible_version(self, element: Element) -> Element | None:
        """The element as the actor may see it now; None if it may not."""
        ...

    def check_ids_visible(self, ids: Iterable[str | None], view: View) -> None:
        """Raise "not found" for ids in a statement that the actor does not know."""
        ...


class ActionWriter:
    """What actions write to. Names they bind go into `bindings` and can be undone."""

    __slots__ = ("_undo", "bindings", "guard", "transaction")

    def __init__(
        self, transaction: Transaction, bindings: dict[str, str], guard: WriteGuard | None = None
    ) -> None:
        self.transaction = transaction
        self.bindings = bindings
        self.guard = guard
        self._undo: list[tuple[str, str | None]] = []

    def bind(self, name: str, id: str) -> None:
        self._undo.append((name, self.bindings.get(name)))
        self.bindings[name] = id

    def undo_bindings(self) -> None:
        """Undo every binding made through this writer."""
        for name, old in reversed(self._undo):
            if old is None:
                self.bindings.pop(name, None)
            else:
                self.bindings[name] = old


class AffectedElement(NamedTuple):
    """An element that an action created, changed or deleted (then its last version), and whether it was created."""

    element: Element
    created: bool
    shown: Element | None = None
    """Deleted under a guard: what the actor saw of it before."""


CompiledAction = Callable[[Row], list[AffectedElement]]


def compile_action(
    action: mutations.ResolvedAction, compiler: PatternCompiler, tables: SchemaLayout, size: int
) -> CompiledAction:
    match action:
        case mutations.ResolvedSpawn():
            return _spawn(action, compiler, tables)
        case mutations.ResolvedLink():
            return _link(action, compiler, tables, size)
        case mutations.ResolvedSet():
            return _set(action, compiler, tables, size)
        case mutations.ResolvedKill():
            return _kill(action, compiler, size)
        case mutations.ResolvedUnlink():
            return _unlink(action, compiler, size)


# --- creation ---------------------------------------------------------------------------------------------------


def _spawn(
    action: mutations.ResolvedSpawn, compiler: PatternCompiler, tables: SchemaLayout
) -> CompiledAction:
    name, slot, variable = action.type, action.register, action.variable
    builders = compile_value_builders(tables.types[name], action.assignments, compiler)
    references = [position for _, _, position in tables.types[name].references]

    def act(row: Row) -> list[AffectedElement]:
        writer: ActionWriter = row[0].writer
        transaction = writer.transaction
        node = Element(transaction.new_id("n"), name, tuple([build(row) for build in builders]))
        if writer.guard is not None:
            named = [node.values[position] for position in references if node.values[position] is not None]
            writer.guard.check_ids_visible(named, transaction.view)
            writer.guard.check("SPAWN", node)
        transaction.spawn(node)
        row[slot] = node
        if variable is not None:
            writer.bind(variable, node.id)
        return [AffectedElement(node, True)]

    return act


def _link(
    action: mutations.ResolvedLink, compiler: PatternCompiler, tables: SchemaLayout, size: int
) -> CompiledAction:
    kind = tables.schema.edges[action.edge]
    schema = tables.schema
    builders: Sequence[Builder] = compile_value_builders(
        tables.types[kind.name], action.assignments, compiler
    )
    targets = [_link_target(target, compiler, tables, size) for target in action.targets]
    slot, variable, if_not_exists = action.register, action.variable, action.if_not_exists
    found = (mutations.ResolvedSpawn, mutations.ResolvedSubquery, VariableRef)
    named = [position for position, target in enumerate(action.targets) if not isinstance(target, found)]

    def act(row: Row) -> list[AffectedElement]:
        writer: ActionWriter = row[0].writer
        transaction = writer.transaction
        ids = tuple([target(row) for target in targets])
        if writer.guard is not None:
            writer.guard.check_ids_visible([ids[position] for position in named], transaction.view)
        integrity.check_targets(transaction.view, schema, kind, ids)
        known = transaction.find_edge(kind, ids) if if_not_exists or kind.symmetric else None
        edge = known or Element(transaction.new_id("e"), kind.name, tuple([b(row) for b in builders]), ids)
        if writer.guard is not None:
            writer.guard.check("LINK", edge)
        if known is None:
            transaction.link(kind, edge)
        row[slot] = edge if known is None or writer.guard is None else _masked_edge(writer.guard, edge)
        if variable is not None:
            writer.bind(variable, edge.id)
        return [AffectedElement(edge, known is None)]

    return act


def _masked_edge(guard: WriteGuard, edge: Element) -> Element:
    """An existing edge, with only those attributes that the actor may see."""
    return guard.visible_version(edge) or Element(
        edge.id, edge.type, (None,) * len(edge.values), edge.targets
    )


def _link_target(
    target: Any, compiler: PatternCompiler, tables: SchemaLayout, size: int
) -> CompiledExpression:
    if isinstance(target, mutations.ResolvedSpawn):
        spawn = _spawn(target, compiler, tables)
        return lambda row: spawn(row)[0].element.id
    if isinstance(target, mutations.ResolvedSubquery):
        query = _subquery(target, compiler, size)

        def one(row: Row) -> str:
            found = query(row)
            if len(found) != 1:
                raise MutationError(
                    "E3602", f"The subquery must yield exactly one row, it yields {len(found)}"
                )
            return found[0].id

        return one
    return compiler.compile_element_id(target)


# --- updates ----------------------------------------------------------------------------------------------------


def _set(
    action: mutations.ResolvedSet, compiler: PatternCompiler, tables: SchemaLayout, size: int
) -> CompiledAction:
    find = _targets(action.target, compiler, size)
    values = [(name, compiler.compile_element_id(value)) for name, value in action.assignments]
    slot = action.target.register if isinstance(action.target, VariableRef) else None

    def act(row: Row) -> list[AffectedElement]:
        writer: ActionWriter = row[0].writer
        affected = []
        for element in find(row):
            assigned = [(name, value(row)) for name, value in values]
            new = _updated(writer, tables, element, assigned)
            writer.transaction.update(element, new)
            affected.append(AffectedElement(new, False))
            if slot is not None:
                row[slot] = new if writer.guard is None else writer.guard.visible_version(new) or row[slot]
        return affected

    return act


def _updated(
    writer: ActionWriter, tables: SchemaLayout, element: Element, assigned: Sequence[tuple[str, Any]]
) -> Element:
    """The element's next version, after checking that every assignment is permitted, known, writable and valid."""
    table, guard = tables.types[element.type], writer.guard
    values = list(element.values)
    for name, value in assigned:
        if guard is not None:
            guard.check("SET", element, name)
        position = table.places.get(name)
        if position is None:
            raise AnalysisError("E2002", f"Unknown attribute '{name}' on type '{element.type}'")
        if table.attributes[position].readonly:
            text = f"Attribute '{name}' of '{element.type}' is readonly: it can only be set on creation"
            raise ConstraintViolation("E3004", text, fields={"type": element.type, "attribute": name})
        values[position] = table.checks[position](value)
        if guard is not None and value is not None and table.attributes[position].type.is_reference:
            guard.check_ids_visible((values[position],), writer.transaction.view)
    return Element(element.id, element.type, tuple(values), element.targets)


# --- deletion ---------------------------------------------------------------------------------------------------


def _kill(action: mutations.ResolvedKill, compiler: PatternCompiler, size: int) -> CompiledAction:
    find = _targets(action.target, compiler, size)
    cascade = action.cascade

    def act(row: Row) -> list[AffectedElement]:
        writer: ActionWriter = row[0].writer
        affected = []
        for element in find(row):
            if writer.transaction.view.get(element.id) is None:
                continue
            shown = _checked_deletion(writer, "KILL", element)
            if element.targets is not None:
                raise MutationError("E3603", f"KILL takes a node, {element.id} is an edge: use UNLINK")
            try:
                writer.transaction.kill(element, cascade)
            except MutationError as error:
                raise _hide_ids(writer, error) from None
            affected.append(AffectedElement(element, False, shown))
        return affected

    return act


def delete_element(transaction: Transaction, element: Element, guard: WriteGuard | None) -> None:
    """KILL a node with the referential actions of its edges, or UNLINK an edge. Used by ACK."""
    writer = ActionWriter(transaction, {}, guard)
    if element.targets is not None:
        _checked_deletion(writer, "UNLINK", element)
        transaction.unlink(element)
        return
    _checked_deletion(writer, "KILL", element)
    try:
        transaction.kill(element, None)
    except MutationError as error:
        raise _hide_ids(writer, error) from None


def _checked_deletion(writer: ActionWriter, operation: str, element: Element) -> Element | None:
    """Raise if the actor may not delete the element. Return what it sees of the element, for RETURNING."""
    if writer.guard is None:
        return None
    writer.guard.check(operation, element)
    return writer.guard.visible_version(element)


def _hide_ids(writer: ActionWriter, error: MutationError) -> MutationError:
    """Hide the edge in a "deletion restricted" error if the actor cannot see it."""
    if error.code != "E3302" or writer.guard is None:
        return error
    edge = writer.transaction.view.get(error.fields["id"])
    if edge is not None and writer.guard.can_see(edge):
        return error
    return MutationError("E3302", "Deletion restricted")


def _unlink(action: mutations.ResolvedUnlink, compiler: PatternCompiler, size: int) -> CompiledAction:
    find = _targets(action.target, compiler, size)

    def act(row: Row) -> list[AffectedElement]:
        writer: ActionWriter = row[0].writer
        affected = []
        for element in find(row):
            if writer.transaction.view.get(element.id) is None:
                continue
            shown = _checked_deletion(writer, "UNLINK", element)
            if element.targets is None:
                raise MutationError("E3603", f"UNLINK takes an edge, {element.id} is a node: use KILL")
            writer.transaction.unlink(element)
            affected.append(AffectedElement(element, False, shown))
        return affected

    return act


# --- targets ----------------------------------------------------------------------------------------------------


def _targets(
    target: mutations.ResolvedTarget, compiler: PatternCompiler, size: int
) -> Callable[[Row], list[Element]]:
    """Return the function that finds the elements of an action, in their latest versions."""
    if isinstance(target, mutations.ResolvedSubquery):
        return _subquery(target, compiler, size)
    if isinstance(target, mutations.ResolvedEdgesByTargets):
        return _by_endpoints(target, compiler)
    if isinstance(target, VariableRef):
        return _latest(target.register)
    return _by_reference(
        compiler.compile_element_id(target), target.name if isinstance(target, ElementReference) else None
    )


def _latest(slot: int) -> Callable[[Row], list[Element]]:
    """A variable's element as it is now; none if an earlier row or action deleted it."""

    def find(row: Row) -> list[Element]:
        bound = row[slot]
        element = row[0].writer.transaction.view.get(bound.id) if bound is not None else None
        return [] if element is None else [element]

    return find


def _by_reference(id_of: CompiledExpression, name: object) -> Callable[[Row], list[Element]]:
    def find(row: Row) -> list[Element]:
        id = id_of(row)
        context: ExecutionContext = row[0]
        writer: ActionWriter = context.writer
        element = writer.transaction.view.get(id) if type(id) is str else None
        if element is None:
            virtual = context.layer0_type_of(id) if type(id) is str and context.layer0_type_of else None
            if virtual is not None:
                raise AnalysisError("E2012", f"Cannot write protected type '{virtual}'")
            shown = name if isinstance(name, str) else id
            raise MutationError(
                "E3601", f"#{shown} was not found: nothing is bound to it or has this id", fields={"id": id}
            )
        return [element]

    return find


def _by_endpoints(
    target: mutations.ResolvedEdgesByTargets, compiler: PatternCompiler
) -> Callable[[Row], list[Element]]:
    ends = [None if end is None else compiler.compile_element_id(end) for end in target.targets]
    name = target.edge

    def find(row: Row) -> list[Element]:
        view = row[0].writer.transaction.view
        wanted = [None if end is None else end(row) for end in ends]
        anchor = next((i for i, id in enumerate(wanted) if id is not None), None)
        candidates = view.scan((name,)) if anchor is None else view.edges_at(name, anchor, wanted[anchor])
        symmetric = compiler.context.schema.edges[name].symmetric
        if symmetric and anchor is not None:
            candidates = [*candidates, *view.edges_at(name, 1 - anchor, wanted[anchor])]
        guard = row[0].writer.guard
        found = [
            edge
            for edge in candidates
            if _joins(edge, wanted, symmetric) and (guard is None or guard.can_see(edge))
        ]
        if not found:
            raise MutationError("E3601", f"No edge '{name}' with these targets was found (not found)")
        return found

    return find


def _joins(edge: Element, wanted: list[str | None], symmetric: bool) -> bool:
    assert edge.targets is not None
    orders = (edge.targets, edge.targets[::-1]) if symmetric else (edge.targets,)
    return any(all(w is None or w == t for w, t in zip(wanted, order, strict=True)) for order in orders)


def _subquery(
    subquery: mutations.ResolvedSubquery, compiler: PatternCompiler, size: int
) -> Callable[[Row], list[Element]]:
    outer = outer_registers(subquery.query)
    query = RowQuery(subquery.query, subquery.returns, compiler, size, compiler.context.schema, outer)

    def find(row: Row) -> list[Element]:
        kept = row[0].sink
        rows = query.rows(row[0], tuple(enumerate(row))[1:])
        row[0].sink = kept
        view = row[0].writer.transaction.view
        found = dict.fromkeys(element.id for element, *_ in rows if element is not None)
        return [latest for latest in map(view.get, found) if latest is not None]

    return find
