"""Executes compiled queries and mutations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import sleep
from typing import TYPE_CHECKING, Any

from vedette.element import Element, View
from vedette.engine.context.prepared import PreparedStatement
from vedette.engine.context.result import Result
from vedette.engine.context.session_context import Viewer
from vedette.engine.layer0.view import Layer0View
from vedette.engine.statements.compile import CompiledMutation, CompiledQuery
from vedette.graph.actions import ActionWriter, AffectedElement
from vedette.graph.rules import Rule, system_writer
from vedette.graph.transaction import Transaction
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.policy.actor_view import ActorView
from vedette.policy.guard import PolicyGuard
from vedette.values import Value

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session.session import Session

__all__ = [
    "SliceExceeded",
    "commit_transaction",
    "read",
    "run_mutation",
    "run_query",
    "statement_context",
    "system_context",
    "write",
]

_YIELD_SECONDS = 0.0002
"""How long a long read releases the lock, so that a waiting thread really gets it."""


class SliceExceeded(Exception):
    """A read exceeded its slice.

    It is restarted on a snapshot, where it can release the lock. Never shown to users.
    """


# --- contexts ---------------------------------------------------------------------------------------------------


def statement_context(
    session: Viewer, constants: tuple[Value, ...], *, layer0: bool = False, view: View | None = None
) -> tuple[ExecutionContext, PolicyGuard | None]:
    """The execution context of a statement in this session, and the policy guard if an actor is set."""
    database = session.database
    state = database.state
    opened = session.transaction
    if opened is not None:
        opened.check_usable()
    if view is None:
        view = opened.transaction.view if opened is not None else state.graph
    if layer0:
        view = Layer0View(view, database.layer0, session)
    actor = session.actor
    now = opened.now if opened is not None else database.statement_time()
    wall_time = database.clock.now
    context = ExecutionContext(
        view, now, constants, wall_time, state.tick, actor, session.id, session.bindings
    )
    context.candidate_limit = database.work_limit
    if actor is None or not state.schema.policies:
        return context, None
    return context, _with_policy_guard(session, context)


def _with_policy_guard(session: Viewer, context: ExecutionContext) -> PolicyGuard:
    """Restrict the context's view to what the actor may see. Policy conditions read the unrestricted graph."""
    policies = session.database.state.program.policies
    own = ExecutionContext(
        view=context.view,
        now=context.now,
        tick=context.tick,
        actor=context.actor,
        session=context.session,
    )
    policy_view = ActorView(policies, own, session.database.state.schema)
    context.view = policy_view
    return PolicyGuard(policies, own, policy_view, session.bindings, session.database.name)


# --- reads ------------------------------------------------------------------------------------------------------


def read(session: Session, prepared: PreparedStatement, constants: tuple[Value, ...], text: str) -> Result:
    with session.lock_scope:
        query: CompiledQuery = session.executable(prepared, constants, text)
        rows, context = run_query(session, query, constants)
    return Result(columns=query.rows.columns, rows=rows, warnings=context.warnings)


def run_query(
    session: Session, query: CompiledQuery, constants: tuple[Value, ...]
) -> tuple[list[tuple[Any, ...]], ExecutionContext]:
    """Run a query with the lock held.

    A long read continues in slices on a snapshot and releases the lock in between.
    """
    context, _ = statement_context(session, constants, layer0=query.uses_layer0)
    context.pause_at_candidates = min(session.database.settings.statement_slice, context.candidate_limit)
    context.yield_lock = _give_up
    try:
        return query.rows.run(context), context
    except SliceExceeded:
        if not session.allow_long_reads:
            raise
        return _read_in_slices(session, query, constants)


def _give_up() -> None:
    raise SliceExceeded


def _read_in_slices(
    session: Session, query: CompiledQuery, constants: tuple[Value, ...]
) -> tuple[list[tuple[Any, ...]], ExecutionContext]:
    database, opened = session.database, session.transaction
    state = database.state
    snapshot = state.open_snapshot()
    view = snapshot if opened is None else opened.view_on(snapshot)
    context, _ = statement_context(session, constants, layer0=query.uses_layer0, view=CopyingView(view))

    slices = _Slices(session, context)
    context.yield_lock = slices.yield_lock
    try:
        return query.rows.run(context), context
    finally:
        context.yield_lock = None  # breaks the reference cycle with the context
        state.close_snapshot(snapshot)


class _Slices:
    """A long read: releases the lock after each slice."""

    def __init__(self, session: Session, context: ExecutionContext) -> None:
        self._database, self._opened = session.database, session.transaction
        self._context = context
        self._plan()

    def _plan(self) -> None:
        context = self._context
        context.pause_at_candidates = min(
            context.candidates_examined + self._database.settings.statement_slice, context.candidate_limit
        )

    def yield_lock(self) -> None:
        self._plan()
        lock_scope = self._database.lock
        lock_scope.release()
        try:
            sleep(_YIELD_SECONDS)
        finally:
            lock_scope.acquire()
        if self._opened is not None:
            self._opened.check_usable()


class CopyingView:
    """A view of a snapshot that returns copies, which stay valid while others change the graph."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._scans: dict[tuple[str, ...], list[Element]] = {}

    def get(self, id: str) -> Element | None:
        return self._view.get(id)

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        known = self._scans.get(types)
        if known is None:
            known = self._scans[types] = list(self._view.scan(types))
        return known

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        return list(self._view.lookup(owner, attribute, value))

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        return list(self._view.edges_at(edge, position, id))

    def incident(self, id: str) -> Iterable[Element]:
        return list(self._view.incident(id))


# --- writes -----------------------------------------------------------------------------------------------------


def write(session: Session, prepared: PreparedStatement, constants: tuple[Value, ...], text: str) -> Result:
    session.admit()
    with session.lock_scope:
        mutation: CompiledMutation = session.executable(prepared, constants, text)
        return run_mutation(session, mutation, constants)


def run_mutation(session: Session, mutation: CompiledMutation, constants: tuple[Value, ...]) -> Result:
    """Run the actions. Outside of BEGIN the statement is its own transaction."""
    opened = session.transaction
    result = Result()
    if opened is None:
        transaction = session.database.state.begin(counts=result)
    else:
        transaction = opened.transaction
        transaction.counts = result
    context, guard = statement_context(session, constants, layer0=mutation.uses_layer0, view=transaction.view)
    context.writer = ActionWriter(transaction, session.bindings, guard)
    context.layer0_type_of = session.layer0_type_of
    try:
        affected = _run_actions(mutation, context)
        if mutation.returning is not None:
            result.columns = mutation.returning.columns
            result.rows = mutation.returning.rows(_visible_affected(affected, guard))
        warnings = mutation.warnings
        if session.database.watching.uncommitted_index.shapes:
            session.database.watching.publish_uncommitted(transaction)
        if opened is None:
            warnings += tuple(commit_transaction(session, transaction, context.now, result))
    except BaseException:
        context.writer.undo_bindings()
        if opened is None:
            session.database.watching.retract_uncommitted(transaction)
        raise
    result.warnings = warnings
    return result


def _run_actions(mutation: CompiledMutation, context: ExecutionContext) -> list[AffectedElement]:
    affected: list[AffectedElement] = []
    if mutation.bindings is None:
        row: Row = [None] * mutation.size
        row[0] = context
        for index, act in enumerate(mutation.actions):
            found = act(row)
            if index in mutation.returned:
                affected += found
        return affected
    context.pause_at_candidates = context.candidate_limit
    for index, row in enumerate(mutation.bindings.run(context)):
        for position, act in enumerate(mutation.actions):
            if index or position:
                _reload_elements(row, context)
            found = act(row)
            if position in mutation.returned:
                affected += found
    return affected


def _reload_elements(row: Row, context: ExecutionContext) -> None:
    """Replace the elements of the row by their latest versions: rows were found before the first action ran."""
    for slot, value in enumerate(row):
        if type(value) is Element:
            row[slot] = context.view.get(value.id) or value


def _visible_affected(affected: list[AffectedElement], guard: PolicyGuard | None) -> list[AffectedElement]:
    """What RETURNING may show of the affected elements."""
    if guard is None:
        return affected
    return [
        AffectedElement(element, each.created)
        for each in affected
        if (element := each.shown or guard.visible_version(each.element)) is not None
    ]


# --- commit -----------------------------------------------------------------------------------------------------


def commit_transaction(
    session: Session,
    transaction: Transaction,
    now: Any,
    result: Result,
    *,
    started: int | None = None,
    explicit: bool = False,
    cause: str | None = None,
    meta: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """Commit with the lock held. The commit is queued for the disk when this returns."""
    database = session.database
    database.check_writable()
    state = database.state
    commit, warnings = state.commit(
        transaction,
        started=state.sequence if started is None else started,
        explicit=explicit or database.settings.strict_cardinality,
        now=now() if database.settings.now == "wall" else database.clock.now(),
        context=lambda rule: rule_context(session, transaction, now, rule),
        cause=cause,
        meta=meta,
    )
    if commit is not None:
        result.tick = commit.tick
        database.log_writer.append(commit.sequence, commit)
        database.watching.follow(commit, 0)
    if transaction.published:
        database.watching.retract_uncommitted(transaction)
    return warnings


def system_context(database: Database, transaction: Transaction, now: Any) -> ExecutionContext:
    """The context of rules and constraints in a commit without a session."""
    context = ExecutionContext(
        view=transaction.view, now=now, wall_time=database.clock.now, tick=database.state.tick
    )
    context.writer = system_writer(transaction)
    return context


def rule_context(session: Session, transaction: Transaction, now: Any, rule: Rule | None) -> ExecutionContext:
    """The context of rules and constraints: the unrestricted graph.

    A rule that inherits authority has its actor's rights.
    """
    context = ExecutionContext(
        view=transaction.view,
        now=now,
        wall_time=session.database.clock.now,
        tick=session.database.state.tick,
        actor=session.actor,
        session=session.id,
    )
    context.writer = system_writer(transaction)
    context.candidate_limit = context.pause_at_candidates = session.database.work_limit
    inherits = rule is not None and rule.inherit_authority
    if inherits and session.actor is not None and session.database.state.schema.policies:
        context.writer.guard = _with_policy_guard(session, context)
    return context
