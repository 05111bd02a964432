"""The in-memory state of one database and its commit procedure: rules ▸ constraints ▸ commit. No I/O, no locks.

Use `GraphState` with the engine lock held. A commit changes the state and returns a `Commit` record; the caller
makes it durable and evaluates watches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from vedette.element import Element, View
from vedette.engine.state.schema_program import SchemaProgram
from vedette.errors import ConstraintViolation, TransactionError
from vedette.gil import interruptible
from vedette.graph import integrity
from vedette.graph.constraints import check_constraints
from vedette.graph.graph import Graph, IndexLayout
from vedette.graph.overlay import Overlay
from vedette.graph.rules import Rule, fire_rules
from vedette.graph.transaction import ChangeCounts, Transaction
from vedette.graph.type_layout import SchemaLayout
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.compile.union_view import ElementChange
from vedette.language.plan.steps import PlanContext
from vedette.language.schema.model import EdgeType, Schema

__all__ = ["Commit", "GraphState"]

_REPLAN_FACTOR = 4
_LARGE_GRAPH_ELEMENTS = 10_000
"""From this size on, plans are also invalidated when the graph shrinks."""


class Commit(NamedTuple):
    """One commit, as written to the log."""

    sequence: int
    """Number of the commit in its database, without gaps; ticks and notes count as well."""
    tick: int
    """Logical time during the commit."""
    next_tick: int
    """Logical time after it."""
    time: datetime
    changes: Sequence[ElementChange] = ()
    cause: str | None = None
    definition: str | None = None
    notes: Sequence[tuple[str, str]] = ()
    """Key-value notes to store with it, such as positions of watches."""


class GraphState:
    """The committed graph, its schema, and the counters."""

    def __init__(self, schema: Schema, *, boot: int, sequence: int, tick: int, ticks_by_commit: bool) -> None:
        self.layout = IndexLayout()
        self.graph = Graph(self.layout)
        self.sequence = sequence
        self.tick = tick
        self.last_tick_at: datetime | None = None
        self.tick_per_commit = ticks_by_commit
        self.is_applying = False
        """True while changes are being applied. True outside of a commit means that one was interrupted."""
        self.snapshots: list[Overlay] = []
        """Open snapshots. Every commit adds its before-images to each."""
        self.plan_version = 0
        """Incremented when earlier plans must not be used any more."""
        self._replan_below = 0
        self._replan_above = 64
        self._id_head = f"{boot:x}_"
        self._ids = 0
        self.use_schema(schema)

    def use_schema(self, schema: Schema) -> None:
        """Switch to a schema and invalidate all plans."""
        self.schema = schema
        self._has_rules = bool(schema.rules)
        self._constrained = any(not name.startswith("_") for name in schema.constraints)
        self.tables = SchemaLayout(schema)
        for owner, attribute in self.tables.indexes():
            self.graph.ensure_index(owner, attribute, self.tables.index_places(owner, attribute))
        for owner, attribute in list(self.layout.attributes):
            self.graph.ensure_index(owner, attribute, self.tables.index_places(owner, attribute))
        self.invalidate_plans()

    def invalidate_plans(self) -> None:
        self.plan_version += 1
        self.plan_context = PlanContext(self.schema, self.graph, self._has_index, self._ensure_index)
        self.program = SchemaProgram(self.schema, self.tables, self.plan_context)

    def _has_index(self, owner: str, attribute: str) -> bool:
        return (owner, attribute) in self.graph.indexes

    def _ensure_index(self, owner: str, attribute: str) -> None:
        if (owner, attribute) not in self.graph.indexes:
            self.graph.ensure_index(owner, attribute, self.tables.index_places(owner, attribute))

    def continue_from(self, lost: GraphState) -> None:
        """Replace a state that never became durable: do not reuse its ids or plans."""
        self._ids = lost._ids
        self.plan_version = lost.plan_version + 1

    def new_id(self, prefix: str) -> str:
        """An id that this database has never used; it contains the boot count."""
        self._ids += 1
        return f"{prefix}{self._id_head}{self._ids:x}"

    def begin(self, base: View | None = None, counts: ChangeCounts | None = None) -> Transaction:
        base = base if base is not None else self.graph
        return Transaction(base, self.layout, self.tables, self.new_id, counts)

    # --- snapshots --------------------------------------------------------------------------------------------

    def open_snapshot(self) -> Overlay:
        """A view of the current state that does not change while the graph does."""
        snapshot = Overlay(self.graph, self.layout)
        self.snapshots.append(snapshot)
        return snapshot

    def close_snapshot(self, snapshot: Overlay) -> None:
        self.snapshots = [each for each in self.snapshots if each is not snapshot]

    # --- commit -----------------------------------------------------------------------------------------------

    def commit(
        self,
        transaction: Transaction,
        *,
        started: int,
        explicit: bool,
        now: datetime,
        context: Callable[[Rule | None], ExecutionContext],
        cause: str | None = None,
        meta: Sequence[tuple[str, str]] = (),
    ) -> tuple[Commit | None, list[str]]:
        """Run rules and checks, then change the graph. If a check raises, nothing has changed.

        `started` is the sequence at which the transaction began to read. Later commits may conflict with it.
        """
        if started != self.sequence:
            transaction.view.base = self.graph
        if self._has_rules:
            fire_rules(tuple(self.program.rules.values()), transaction, context)
        changes = transaction.net_changes()
        if not changes:
            return None, []
        if started != self.sequence:
            self._check_conflicts(transaction, changes)
        if explicit:
            self._check_minimums(transaction, changes, context)
        warnings = self._check_constraints(changes, context(None)) if self._constrained else []
        self.apply(changes)
        return self.next_commit(now, changes, cause, meta=meta), warnings

    def can_delete_directly(self, element: Element) -> bool:
        """True if nothing can refuse the deletion: no rules, no constraints, no edges."""
        quiet = not self._has_rules and not self._constrained and element.targets is None
        return quiet and next(self.graph.incident(element.id), None) is None

    def commit_deletion(
        self, element: Element, now: datetime, cause: str | None, meta: Sequence[tuple[str, str]]
    ) -> Commit:
        """Commit the deletion of an element without a transaction; see `can_delete_directly`."""
        changes = ((element, None),)
        self.apply(changes)
        return self.next_commit(now, changes, cause, meta=meta)

    def _check_constraints(self, changes: Sequence[ElementChange], context: ExecutionContext) -> list[str]:
        return check_constraints(
            self.program.constraints, context, changes, named=not self._is_bound(context)
        )

    def _is_bound(self, context: ExecutionContext) -> bool:
        """True if policies apply to the actor. Errors then omit ids, which the actor may not be allowed to see."""
        return context.actor is not None and bool(self.schema.policies)

    def apply(self, changes: Sequence[ElementChange]) -> None:
        """Change the graph. `is_applying` stays True until the commit is recorded."""
        self.is_applying = True
        graph = self.graph
        for snapshot in self.snapshots:
            _save_before_images(snapshot, changes)
        for before, after in interruptible(changes):
            if before is None:
                graph.add(after)  # type: ignore[arg-type]
            elif after is None:
                graph.remove(before)
            else:
                graph.replace(before, after)
        size = len(graph.elements)
        if size > self._replan_above or size < self._replan_below:
            self._replan_above = max(64, size * _REPLAN_FACTOR)
            # A queue that alternates between empty and a few thousand elements needs no new plans each time.
            self._replan_below = (
                size // (_REPLAN_FACTOR * _REPLAN_FACTOR) if size >= _LARGE_GRAPH_ELEMENTS else 0
            )
            self.invalidate_plans()

    def next_note_commit(self, now: datetime, meta: Sequence[tuple[str, str]]) -> Commit:
        """A commit without changes that stores notes."""
        self.sequence += 1
        return Commit(self.sequence, self.tick, self.tick, now, notes=meta)

    def advance_ticks(self, amount: int, now: datetime) -> Commit:
        """TICK: advance logical time without a change."""
        tick = self.tick
        self.tick += amount
        self.sequence += 1
        self.last_tick_at = now
        return Commit(self.sequence, tick, self.tick, now)

    def next_commit(
        self,
        now: datetime,
        changes: Sequence[ElementChange],
        cause: str | None = None,
        definition: str | None = None,
        meta: Sequence[tuple[str, str]] = (),
    ) -> Commit:
        """Record the commit of changes that have been applied."""
        tick = self.tick
        if self.tick_per_commit and changes:
            self.tick += 1
            self.last_tick_at = now
        self.sequence += 1
        self.is_applying = False
        return Commit(self.sequence, tick, self.tick, now, changes, cause, definition, meta)

    # --- conflicts --------------------------------------------------------------------------------------------

    def _check_conflicts(self, transaction: Transaction, changes: Sequence[ElementChange]) -> None:
        """First committer wins. Checks made at the operation must still hold on the current graph."""
        elements = self.graph.elements
        for id, old in transaction.before_images.items():
            if elements.get(id) is not old:
                raise _conflict(id)
        for before, after in changes:
            if after is None:
                assert before is not None
                if any(True for _ in transaction.view.incident(before.id)):
                    raise _conflict(before.id)
            else:
                self._recheck_operation(transaction, before, after)

    def _recheck_operation(self, transaction: Transaction, before: Element | None, after: Element) -> None:
        table = self.tables.types[after.type]
        integrity.check_uniques(transaction.view, table, after)
        if after.targets is None or before is not None:
            return
        if any(transaction.view.get(target) is None for target in after.targets):
            raise _conflict(after.id)
        others = Overlay(transaction.view, self.layout)
        others.delete(after.id)
        integrity.check_edge(others, self.schema.edges[after.type], after.targets)

    def _check_minimums(
        self,
        transaction: Transaction,
        changes: Sequence[ElementChange],
        context: Callable[[Rule | None], ExecutionContext],
    ) -> None:
        view = transaction.view
        for edge, position in self.tables.minimum_cardinalities:
            low = edge.cardinalities[position]
            assert low is not None
            for id in self._elements_below_minimum(edge, position, changes):
                element = view.get(id)
                if element is not None and integrity.degree(view, edge, position, id) < low.low:
                    subject, fields = f"'{id}'", {"edge": edge.name, "id": id}
                    if self._is_bound(context(None)):
                        subject, fields = "an element", {"edge": edge.name}
                    text = f"cardinality: {subject} needs at least {low.low} '{edge.name}'"
                    raise ConstraintViolation("E3010", text, fields=fields)

    def _elements_below_minimum(
        self, edge: EdgeType, position: int, changes: Sequence[ElementChange]
    ) -> list[str]:
        """Elements whose number of edges may be too low after the changes: new ones, and ends of removed edges."""
        wanted = edge.parameters[position].type
        found = []
        for before, after in changes:
            if before is None and after is not None and integrity.has_type(self.schema, after, wanted):
                found.append(after.id)
            elif (
                after is None
                and before is not None
                and before.type == edge.name
                and before.targets is not None
            ):
                found.extend(before.targets if edge.symmetric else (before.targets[position],))
        return found


def _save_before_images(snapshot: Overlay, changes: Sequence[ElementChange]) -> None:
    for before, after in changes:
        id = (before or after).id  # type: ignore[union-attr]
        if id not in snapshot.versions:
            if before is None:
                snapshot.delete(id)
            else:
                snapshot.put(before)


def _conflict(id: str) -> TransactionError:
    text = f"Another transaction changed {id}: this one is rolled back, try it again"
    return TransactionError("E5002", text, fields={"id": id})
