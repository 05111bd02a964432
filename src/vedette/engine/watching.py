"""Watches of one database: creating and managing them, telling them what commits mean, carrying out triggers.

A commit's events are worked out while its flush is under way and handed out only when it is durable.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vedette.element import View
from vedette.engine import execution
from vedette.engine.request import Request
from vedette.engine.state import Commit
from vedette.engine.watch_compile import CompiledWatch, compile_watch
from vedette.errors import (
    InvalidStatement,
    MutationError,
    PolicyError,
    StoreError,
    VedetteError,
    WatchError,
)
from vedette.graph.actions import Writer
from vedette.graph.overlay import Overlay
from vedette.language import statements as ast
from vedette.language.affected import Difference
from vedette.language.compile_steps import PatternChains
from vedette.language.context import Context, Row
from vedette.language.resolve_patterns import PatternResolver
from vedette.language.resolved import NodeElement
from vedette.language.scope import Place, Scope
from vedette.language.syntax import Expression, Literal
from vedette.policy.decisions import holds
from vedette.policy.guard import PolicyGuard
from vedette.policy.sight import Sight
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import Entry
from vedette.watch.delta import Delta
from vedette.watch.evaluation import Scene
from vedette.watch.hub import Told, WatchHub, count_row, counted_deltas, evaluate, tell_anew
from vedette.watch.options import MUTABLE, WatchOptions, read_options
from vedette.watch.subscription import WatchEventKind, WatchStatus, next_status
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session import Session

__all__ = ["TRIGGER_CHAIN", "Watching"]

TRIGGER_CHAIN = 100
"""How many commits triggers may cause one after another."""

log = logging.getLogger(__name__)
_DEFAULTS = WatchOptions()


class Watching:
    """The watch side of a database. Methods that take a session do their own waiting for the turn."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.hub = WatchHub()
        self._compiled: dict[Any, CompiledWatch] = {}
        self.triggers: deque[tuple[Watch, Row, int]] = deque()
        self._by_session: dict[str, list[int]] = {}

    # --- creating ---------------------------------------------------------------------------------------------

    def create(self, request: Request) -> Watch:
        """WATCH: a new watch with its initial events. B24: outside of any transaction, on committed state."""
        statement = request.prepared.statement
        assert isinstance(statement, ast.Watch)
        session = request.session
        with session.turn:
            options = self._options(request, statement.options) if statement.options else _DEFAULTS
            if options.mode == "consume":
                raise InvalidStatement(
                    "E1102", "mode: consume is not available yet: it arrives in the next release"
                )
            self._check_limits(session)
            guarded = session.actor is not None and bool(self._database.schema.policies)
            compiled = self._compile(request, options, guarded)
            guard = self._check_policy(request, compiled) if guarded else None
            constants = request.constants + self._capture(request, compiled, guard)
            watch = self._make(session, compiled, constants, options, statement)
            self._begin(watch)
        return watch

    def _options(self, request: Request, given: Sequence[ast.WatchOption]) -> WatchOptions:
        return read_options(given, lambda expression: self._value(request, expression))

    def _value(self, request: Request, expression: Expression) -> Any:
        """The value of an option: its literals are constants of the statement."""
        if isinstance(expression, Literal):
            return request.constants[expression.slot] if expression.slot is not None else expression.value
        state = self._database.state
        frame = request.prepared.frame(request.signature, state.schema)
        resolved = PatternResolver(frame, Place(actor=False)).resolve(expression, Scope(frame))
        frame.finish()
        context = Context(view=state.graph, constants=request.constants, now=self._database.clock.now)
        return PatternChains(state.plan_context).condition(resolved)([context])

    def _compile(self, request: Request, options: WatchOptions, guarded: bool) -> CompiledWatch:
        """Shapes are kept as long as the schema they were compiled for."""
        key = (id(request.prepared), request.signature, guarded, options.filter is not None)
        known = self._compiled.get(key)
        if known is None or known.shape.schema is not self._database.schema:
            known = self._compiled[key] = compile_watch(request, options, guarded=guarded)
        return known

    def _capture(
        self, request: Request, compiled: CompiledWatch, guard: PolicyGuard | None
    ) -> tuple[Any, ...]:
        session = request.session
        values: list[Any] = []
        for capture in compiled.captures:
            if capture.kind == "self" and session.actor is None:
                raise PolicyError("E7002", "#self needs an actor: begin a session AS someone first")
            if capture.kind in ("self", "current_actor"):
                values.append(session.actor)
            elif capture.kind == "current_session":
                values.append(session.id)
            else:
                values.append(self._referred(session, capture.name, capture.quoted, guard))
        return tuple(values)

    def _referred(self, session: Session, name: str, quoted: bool, guard: PolicyGuard | None) -> str:
        id = name if quoted else session.bindings.get(name, name)
        element = self._database.state.graph.get(id)
        known = element is not None and (guard is None or guard.sees(element))
        if not known and self._database.layer0.type_of(id, session) is None:
            raise MutationError(
                "E3601", f"#{name} was not found: nothing is bound to it or has this id", fields={"id": id}
            )
        return id

    def _check_limits(self, session: Session) -> None:
        limits = session.watch_limits
        if limits is None:
            return
        own = len(self._by_session.get(session.id, ()))
        for current, limit in ((own, limits[0]), (len(self.hub.watches), limits[1])):
            if current >= limit:
                raise WatchError(
                    "E8006",
                    f"Too many watches: {current} of {limit}",
                    fields={"current": current, "limit": limit},
                )

    def _make(
        self,
        session: Session,
        compiled: CompiledWatch,
        constants: tuple[Any, ...],
        options: WatchOptions,
        statement: ast.Watch,
    ) -> Watch:
        now_ms = timestamp_to_ms(self._database.clock.now())
        watch = Watch(
            self.hub.next_number(),
            compiled.shape,
            constants,
            options,
            owner=session.id,
            actor=session.actor,
            created_ms=now_ms,
        )
        if statement.name is not None:
            watch.details.name = statement.name
            session.bindings[statement.name] = self.id_of(watch)
        if compiled.actions:
            watch.details.actions = compiled.actions
            watch.details.actions_size = compiled.size
        self._by_session.setdefault(session.id, []).append(watch.number)
        self.hub.add(watch)
        return watch

    def _begin(self, watch: Watch) -> None:
        """What is there already: the state that counting watches need, and the initial event."""
        state = self._database.state
        full = watch.options.initial.kind == "full" and bool(watch.shape.columns)
        if not full and watch.shape.strategy == "rows":
            return
        context = self._own_context(watch, state.graph)
        rows = self._start_counting(watch, context)
        if full:
            delta = Delta("initial", None)
            delta.matches = list(rows)
            watch.push(delta, state.tick, state.sequence, watch.created_ms)

    def _start_counting(self, watch: Watch, context: Context) -> list[dict[str, Any]]:
        strategy = watch.shape.strategy
        if strategy == "rows":
            return list(evaluate(watch, context).values())
        if strategy == "reevaluated":
            watch.details.result = evaluate(watch, context)
            return list(watch.details.result.values())
        identities: dict[Any, None] = {}
        if strategy == "groups" and not watch.shape.group_keys:
            identities[self._empty_group(watch)] = None
        for row in watch.shape.query.run(context):
            identities[count_row(watch, row, 1)] = None
        return [dict(delta.match or {}) for delta in counted_deltas(watch, identities, context)]

    def _empty_group(self, watch: Watch) -> tuple[()]:
        """Without a group key there is always exactly one row, also over nothing."""
        watch.details.start_groups(watch.shape)
        return ()

    def _own_context(self, watch: Watch, view: View) -> Context:
        context = Context(
            view=view,
            constants=watch.constants,
            now=self._database.clock.now,
            tick=self._database.state.tick,
            actor=watch.actor,
        )
        if watch.shape.guarded:
            self._put_sight(watch, context)
        return context

    # --- policy -----------------------------------------------------------------------------------------------

    def _put_sight(self, watch: Watch, context: Context) -> None:
        """The actor's eyes, as they are now: rights are judged anew at every commit."""
        state = self._database.state
        own = Context(
            view=context.view, now=context.now, tick=context.tick, actor=watch.actor, session=watch.owner
        )
        context.view = Sight(state.program.policies, own, state.schema)

    def _check_policy(self, request: Request, compiled: CompiledWatch) -> PolicyGuard:
        """mew-watch-system §9.1: may watch, may see the types, may see the attributes; else E8001 and no more."""
        session = request.session
        _, guard = execution.statement_context(session, ())
        assert guard is not None
        try:
            guard.check_meta("SPAWN", "_Watch")
            denied = self._denied_type(session, compiled)
        except PolicyError:
            denied = "META SPAWN on _Watch"
        if denied is not None:
            log.warning(
                "A watch was denied to %s",
                session.actor,
                extra={
                    "action": "watch.denied",
                    "actor": session.actor,
                    "pattern": request.text,
                    "reason": denied,
                },
            )
            raise WatchError("E8001", "Watch pattern denied")
        return guard

    def _denied_type(self, session: Session, compiled: CompiledWatch) -> str | None:
        state = self._database.state
        context = Context(
            view=state.graph, now=self._database.clock.now, tick=state.tick, actor=session.actor
        )
        for element in compiled.shape.resolved.pattern.elements:
            if not isinstance(element, NodeElement) or element.implicit:
                continue
            if not any(self._may_match(name, context) for name in element.types):
                return f"MATCH on {element.type}"
        return None

    def _may_match(self, type_name: str, context: Context) -> bool:
        """Whether some policy could show an element of the type; what depends on the element is judged later."""
        if type_name.startswith("_"):
            return True
        allowed = False
        for policy in self._database.state.program.policies:
            if policy.attribute is not None or not policy.speaks_about("MATCH", type_name, None):
                continue
            if policy.instance:
                allowed = allowed or policy.allow
            elif holds(policy, None, context):
                if not policy.allow:
                    return False
                allowed = True
        return allowed

    # --- a grown schema ---------------------------------------------------------------------------------------

    def before_define(self) -> dict[int, dict[Any, Any]]:
        """What watches of actors see now: policies may be about to change."""
        graph = self._database.state.graph
        watches = [
            w
            for w in self.hub.watches.values()
            if w.actor is not None and w.status is not WatchStatus.CANCELLED
        ]
        return {watch.number: evaluate(watch, self._own_context(watch, graph)) for watch in watches}

    def after_define(self, seen: dict[int, dict[Any, Any]], commit: Commit) -> None:
        """Compile every shape for the new schema, move its watches over, and tell actors what they see now."""
        for key, compiled in list(self._compiled.items()):
            guarded = compiled.shape.guarded
            fresh = compile_watch(compiled.request, compiled.options, guarded=guarded)
            self._compiled[key] = fresh
            for watch in compiled.shape.index.everything():
                self.hub.remove(watch)
                watch.shape = fresh.shape
                self.hub.add(watch)
        told = Told(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        for number, rows in seen.items():
            watch = self.hub.watches[number]
            watch.details.result = rows
            tell_anew(watch, self._own_context(watch, self._database.state.graph), told)

    # --- telling ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit, depth: int) -> None:
        """Work out what a commit means, with the turn held; its watches are woken when it is durable."""
        shapes = self.hub.concerned(commit.changes)
        if not shapes:
            return
        state = self._database.state
        before = Overlay(state.graph, state.layout)
        for old, new in commit.changes:
            if old is not None:
                before.put(old)
            elif new is not None:
                before.drop(new.id)
        self._tell(commit.changes, before, state.graph, commit, depth)

    def _tell(
        self, changes: Sequence[Difference], before: View, after: View, commit: Commit, depth: int
    ) -> None:
        database = self._database
        scene = Scene(before, after, now=database.clock.now, tick=commit.tick, sight=self._put_sight)
        told = Told(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        self.hub.tell(self.hub.concerned(changes), changes, scene, told)
        for watch in told.overflowed:
            self._overflow(watch)
        self.triggers.extend((watch, row, depth + 1) for watch, row in told.triggers)
        watches = [
            watch for watch in told.watches.values() if watch.has_details and watch.details.wake is not None
        ]
        if watches:
            database.gate.notify(commit.sequence, lambda _: _wake(watches))

    def ticked(self) -> None:
        """A tick has passed: what waited for it may be handed out."""
        for watch in self.hub.watches.values():
            if watch.buffer is not None and watch.buffer.held:
                watch.buffer.held = 0
                if watch.details.wake is not None:
                    watch.details.wake()

    def _overflow(self, watch: Watch) -> None:
        dropped = watch.pending + 1
        record = WatchError(
            "E8005",
            "Buffer full and on_full: error configured; watch cancelled",
            fields={"handle": self.id_of(watch), "buffer_size": watch.options.buffer, "dropped": dropped},
        )
        watch.details.errors.append(record)
        self._end(watch, WatchEventKind.OVERFLOW)

    def run_triggers(self, session: Session) -> None:
        """Carry out what commits triggered, each match in a transaction of its own, with the watch's authority."""
        while self.triggers:
            try:
                watch, row, depth = self.triggers.popleft()
            except IndexError:
                return
            if watch.status is WatchStatus.CANCELLED:
                continue
            try:
                self._run_trigger(session, watch, row, depth)
            except StoreError:
                raise
            except VedetteError as error:
                watch.details.errors.append(error)
                log.warning(
                    "The trigger of watch %s failed: %s",
                    self.id_of(watch),
                    error,
                    extra={"action": "trigger.failed", "watch": self.id_of(watch), "code": error.code},
                )

    def _run_trigger(self, session: Session, watch: Watch, row: Row, depth: int) -> None:
        if depth > TRIGGER_CHAIN:
            raise WatchError("E8009", f"Triggers caused more than {TRIGGER_CHAIN} commits one after another")
        self._database.admit()
        with session.turn:
            state = self._database.state
            transaction = state.begin()
            context = self._own_context(watch, transaction.view)
            context.writer = Writer(transaction, {})
            if watch.shape.guarded:
                own = Context(view=transaction.view, now=context.now, tick=context.tick, actor=watch.actor)
                sight = Sight(state.program.policies, own, state.schema)
                context.writer.guard = PolicyGuard(state.program.policies, own, sight)
            fresh: Row = row + [None] * (watch.details.actions_size - len(row))
            fresh[0] = context
            for act in watch.details.actions:
                act(fresh)
            self._commit_trigger(watch, transaction, context, depth)

    def _commit_trigger(self, watch: Watch, transaction: Any, context: Context, depth: int) -> None:
        database = self._database
        commit, _ = database.state.commit(
            transaction,
            started=database.state.sequence,
            explicit=database.settings.strict_cardinality,
            now=database.clock.now(),
            context=lambda rule: execution.system_context(database, transaction, context.now),
            cause=f"trigger {self.id_of(watch)}",
        )
        if commit is not None:
            database.gate.submit(commit.sequence, commit)
            self.committed(commit, depth)

    # --- handing out ------------------------------------------------------------------------------------------

    def take(self, session: Session, watch: Watch, limit: int | None) -> list[Entry]:
        """Events that are ready, in order."""
        with session.turn:
            return watch.take(self._database.gate.durable_tick, limit)

    def take_errors(self, session: Session, watch: Watch) -> list[Any]:
        with session.turn:
            found = list(watch.details.errors)
            watch.details.errors.clear()
        return found

    def confirm(self, session: Session, watch: Watch, position: int) -> None:
        """A reliable watch's events up to this position need not be kept any longer."""
        with session.turn:
            watch.details.confirmed = max(watch.details.confirmed, position)

    # --- managing ---------------------------------------------------------------------------------------------

    def id_of(self, watch: Watch) -> str:
        return f"w{self._database.boot:x}_{watch.number:x}"

    def find(self, session: Session, id: str) -> Watch:
        """The watch of a handle. Unknown is E8002, somebody else's E8010."""
        head = f"w{self._database.boot:x}_"
        try:
            watch = self.hub.watches.get(int(id.removeprefix(head), 16)) if id.startswith(head) else None
        except ValueError:
            watch = None
        if watch is None:
            raise _unknown(id)
        if not self._may_manage(session, watch):
            raise WatchError("E8010", "This watch belongs to another session", fields={"handle": id})
        return watch

    def _may_manage(self, session: Session, watch: Watch) -> bool:
        if watch.owner == session.id or session.actor is None or watch.actor == session.actor:
            return True
        _, guard = execution.statement_context(session, ())
        return guard is not None and guard.allows_meta("SET", "_Watch")

    def may_see_all(self, session: Session) -> bool:
        """Whether the session's actor has META MATCH on `_Watch`."""
        _, guard = execution.statement_context(session, ())
        return guard is None or guard.allows_meta("MATCH", "_Watch")

    def manage(self, session: Session, watch: Watch, operation: str) -> None:
        """PAUSE, RESUME, CANCEL: take effect at once, outside of any transaction (B24)."""
        with session.turn:
            self._change_status(watch, WatchEventKind(operation.lower()))

    def _change_status(self, watch: Watch, event: WatchEventKind) -> None:
        if event is WatchEventKind.CANCEL:
            self._end(watch, event)
            return
        status = next_status(watch.status, event)
        if status is None:
            raise _unknown(self.id_of(watch))
        watch.status = status
        if watch.details.wake is not None:
            watch.details.wake()

    def _end(self, watch: Watch, event: WatchEventKind) -> None:
        status = next_status(watch.status, event)
        if status is None or watch.status is WatchStatus.CANCELLED:
            return
        watch.status = status
        self.hub.remove(watch)
        if watch.buffer is not None:
            watch.buffer.clear()
        if watch.has_details and watch.details.wake is not None:
            watch.details.wake()

    def alter(
        self, session: Session, watch: Watch, given: Sequence[ast.WatchOption], constants: tuple[Any, ...]
    ) -> None:
        for option in given:
            if option.name not in MUTABLE:
                text = f"Option '{option.name}' cannot be changed after watch creation"
                raise WatchError("E8008", text, fields={"option": option.name})
        with session.turn:
            if next_status(watch.status, WatchEventKind.ALTER) is None:
                raise _unknown(self.id_of(watch))
            literal = lambda e: constants[e.slot] if e.slot is not None and constants else e.value  # noqa: E731
            options = read_options(given, literal, watch.options)
            if any(option.name == "filter" for option in given):
                raise WatchError("E8009", "Invalid watch option 'filter': altering it is not available yet")
            watch.options = options

    def end_session(self, session: Session) -> None:
        """A session ends: its best-effort watches end with it; reliable ones and triggers go on without an owner."""
        for number in self._by_session.pop(session.id, []):
            watch = self.hub.watches.get(number)
            if watch is None:
                continue
            lasting = watch.options.delivery == "reliable" or (
                watch.has_details and watch.details.actions is not None
            )
            if lasting and watch.status is not WatchStatus.CANCELLED:
                watch.owner = None
                watch.details.wake = None
            else:
                self._end(watch, WatchEventKind.CANCEL)
                self.hub.forget(watch)


def _wake(watches: Sequence[Watch]) -> None:
    for watch in watches:
        wake = watch.details.wake
        if wake is not None:
            wake()


def _unknown(id: str) -> WatchError:
    text = "Handle references non-existent or cancelled watch"
    return WatchError("E8002", text, fields={"handle": id})
