"""Watches of one database: creating and managing them, telling them what commits mean, handing out events.

A commit's events are worked out while its flush is under way and handed out only when it is durable. Watches with
`visibility: immediate` stand in a hub of their own and are told statement by statement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from threading import Condition
from typing import TYPE_CHECKING, Any

from vedette.element import View
from vedette.engine import execution
from vedette.engine.history import Trimmed
from vedette.engine.lasting import LastingWatches, refuse_since
from vedette.engine.request import Request
from vedette.engine.self_check import SelfCheck
from vedette.engine.state import Commit
from vedette.engine.triggers import Triggers
from vedette.engine.watch_compile import CompiledWatch, compile_watch
from vedette.engine.watch_options import altered_options, option_values
from vedette.engine.watch_rights import check_watch_rights
from vedette.errors import InvalidStatement, MutationError, PolicyError, WatchError
from vedette.graph.overlay import Overlay
from vedette.graph.transaction import Transaction
from vedette.language import statements as ast
from vedette.language.affected import Difference
from vedette.language.context import Context
from vedette.language.printer import print_statement
from vedette.language.syntax import Literal
from vedette.language.tree import exchange
from vedette.policy.guard import PolicyGuard
from vedette.policy.sight import Sight
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import Entry
from vedette.watch.delta import ADDED, CHANGED, REMOVED, Delta
from vedette.watch.evaluation import Scene
from vedette.watch.hub import Told, WatchHub, count_row, counted_deltas, evaluate, tell_anew
from vedette.watch.options import WatchOptions, read_options
from vedette.watch.resolver import Capture
from vedette.watch.subscription import WatchEventKind, WatchStatus, next_status
from vedette.watch.watch import Watch
from vedette.watch.windows import WindowState

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session import Session

__all__ = ["Watching"]

_DEFAULTS = WatchOptions()
RETAINED_EVENTS = 10_000
"""How many events can still be read as `_WatchEvent` after they were handed out."""


class Watching:
    """The watch side of a database. Methods that take a session wait for the turn; the others are called in it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.hub = WatchHub()
        self.immediate = WatchHub(self.hub)
        """Watches that see transactions before they commit."""
        self.lasting = LastingWatches(self)
        self.triggers = Triggers(self)
        self._compiled: dict[Any, CompiledWatch] = {}
        self._known_options: dict[WatchOptions, WatchOptions] = {}
        """Equal options are one object: a million watches have a few."""
        self._by_session: dict[str, list[int]] = {}
        self.self_check = SelfCheck(self, database.settings.self_check_commits)
        self._cancelled = 0
        """Watches that have ended and are kept for those who ask."""
        self._holding: dict[int, Watch] = {}
        """Watches with events that wait for a tick."""
        self._full: dict[int, Watch] = {}
        """Watches with on_full: block that have no room."""
        self._room = Condition(database.turn)
        self.recent: deque[tuple[Watch, Entry]] = deque(maxlen=RETAINED_EVENTS)
        """Events that were handed out lately, of all watches: what `_WatchEvent` shows beside those that wait."""

    # --- creating ---------------------------------------------------------------------------------------------

    def create(self, request: Request) -> Watch:
        """WATCH: a new watch with its initial events. B24: outside of any transaction, on committed state."""
        statement = request.prepared.statement
        assert isinstance(statement, ast.Watch)
        session = request.session
        with session.turn:
            values = option_values(request)
            options = read_options(statement.options, values) if statement.options else _DEFAULTS
            options = self._known_options.setdefault(options, options)
            if options.mode == "consume":
                raise InvalidStatement(
                    "E1102", "mode: consume is not available yet: it arrives in the next release"
                )
            self._check_limits(session)
            guarded = session.actor is not None and bool(self.database.schema.policies)
            compiled = self._compile(request, options, guarded)
            guard = check_watch_rights(request, compiled) if guarded else None
            constants = request.constants + self._capture(request, compiled, guard)
            watch = self._make(compiled, constants, options, session.id, session.actor)
            if statement.name is not None:
                watch.details.name = statement.name
                session.bindings[statement.name] = self.id_of(watch)
            self._by_session.setdefault(session.id, []).append(watch.number)
            self._begin(watch)
            if watch.lasts:
                watch.details.request = request
                self.lasting.remember(watch, request)
        return watch

    def _compile(self, request: Request, options: WatchOptions, guarded: bool) -> CompiledWatch:
        """Shapes are kept as long as the schema they were compiled for."""
        key = (id(request.prepared), request.signature, guarded)
        known = self._compiled.get(key)
        if known is None or known.shape.schema is not self.database.schema:
            known = self._compiled[key] = compile_watch(request, options, guarded=guarded)
        return known

    def _capture(
        self,
        request: Request,
        compiled: CompiledWatch,
        guard: PolicyGuard | None,
        known: Mapping[Capture, Any] | None = None,
    ) -> tuple[Any, ...]:
        """Values taken from the session; `known` ones were taken before."""
        session = request.session
        values: list[Any] = []
        for capture in compiled.captures:
            if known is not None and capture in known:
                values.append(known[capture])
                continue
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
        element = self.database.state.graph.get(id)
        known = element is not None and (guard is None or id == session.actor or guard.sees(element))
        if not known and self.database.layer0.type_of(id, session) is None:
            text = f"#{name} was not found: nothing is bound to it or has this id"
            raise MutationError("E3601", text, fields={"id": id})
        return id

    def _check_limits(self, session: Session) -> None:
        limits = session.watch_limits
        if limits is None:
            return
        watches = [self.hub.watches.get(number) for number in self._by_session.get(session.id, ())]
        own = sum(watch is not None and watch.status is not WatchStatus.CANCELLED for watch in watches)
        for current, limit in ((own, limits[0]), (len(self.hub.watches) - self._cancelled, limits[1])):
            if current >= limit:
                fields = {"current": current, "limit": limit}
                raise WatchError("E8006", f"Too many watches: {current} of {limit}", fields=fields)

    def _make(
        self,
        compiled: CompiledWatch,
        constants: tuple[Any, ...],
        options: WatchOptions,
        owner: str | None,
        actor: str | None,
    ) -> Watch:
        now = self.database.clock.now()
        watch = Watch(
            self.hub.next_number(),
            compiled.shape,
            constants,
            options,
            owner=owner,
            actor=actor,
            created_ms=timestamp_to_ms(now),
        )
        if compiled.actions:
            watch.details.actions = compiled.actions
            watch.details.actions_size = compiled.size
        if options.window.kind != "none":
            watch.details.window = WindowState(options.window, now)
            self._schedule_window(watch)
        return watch

    def _begin(self, watch: Watch) -> None:
        """What is there already, or since then, and from now on what comes."""
        initial = watch.options.initial
        if initial.kind != "since":
            self.start(watch, self.database.state.graph)
            self._hub_of(watch).add(watch)
            return
        if initial.tick >= self.database.state.tick:
            self.start(watch, self.database.state.graph)
            self._hub_of(watch).add(watch)
            return
        try:
            sequence = self.database.history.sequence_of_tick(initial.tick)
            self.database.history.after(sequence)
        except Trimmed:
            raise refuse_since(initial.tick) from None
        self.lasting.catch_up(watch, sequence)

    def start(self, watch: Watch, view: View, tick: int | None = None) -> None:
        """The state that counting watches need, and the initial event, as of this view (by default the present)."""
        state, details_needed = self.database.state, watch.shape.strategy != "rows"
        windowed_groups = watch.shape.aggregates and watch.options.window.kind != "none"
        full = watch.options.initial.kind == "full" and bool(watch.shape.columns) and watch.position == 0
        if not details_needed and not full:
            return
        rows = self._start_counting(watch, self.own_context(watch, view))
        if full and not windowed_groups:
            delta = Delta("initial", None)
            delta.matches = list(rows)
            watch.push(delta, state.tick if tick is None else tick, state.sequence, watch.created_ms)

    def _start_counting(self, watch: Watch, context: Context) -> list[dict[str, Any]]:
        strategy = watch.shape.strategy
        if strategy == "rows":
            return list(evaluate(watch, context).values())
        details = watch.details
        if strategy == "reevaluated":
            details.result = evaluate(watch, context)
            return list(details.result.values())
        details.reset_counts()
        identities: dict[Any, None] = {}
        if strategy == "groups" and not watch.shape.group_keys:
            details.start_groups(watch.shape)
            identities[()] = None
        for row in watch.shape.query.run(context):
            identities[count_row(watch, row, 1)] = None
        return [dict(delta.match or {}) for delta in counted_deltas(watch, identities, context)]

    def revive(self, facts: dict[str, Any], constants: tuple[Any, ...]) -> Watch | None:
        """A stored watch, made anew without a session; None when its statement fits the ontology no longer."""
        prepared, _ = self.database.statements.one(facts["text"])
        statement = prepared.statement
        assert isinstance(statement, ast.Watch)
        request = Request(_Absent(self.database), prepared, constants[: facts["given"]], facts["text"])  # type: ignore[arg-type]
        options = read_options(statement.options, option_values(request))
        guarded = facts["actor"] is not None and bool(self.database.schema.policies)
        compiled = self._compile(request, options, guarded)
        watch = self._make(compiled, constants, options, None, facts["actor"])
        watch.details.name = facts["name"]
        watch.created_ms = facts["created_ms"]
        self.hub.watches[watch.number] = watch
        return watch

    def restore(self, meta: dict[str, str]) -> None:
        """Take up what lasted over a restart."""
        self.lasting.restore(meta)

    def _hub_of(self, watch: Watch) -> WatchHub:
        return self.immediate if watch.options.visibility == "immediate" else self.hub

    # --- eyes -------------------------------------------------------------------------------------------------

    def own_context(self, watch: Watch, view: View) -> Context:
        state = self.database.state
        context = Context(
            view=view,
            constants=watch.constants,
            now=self.database.clock.now,
            tick=state.tick,
            actor=watch.actor,
        )
        if watch.shape.guarded:
            self.put_sight(watch, context)
        return context

    def put_sight(self, watch: Watch, context: Context) -> None:
        """The actor's eyes, as they are now: rights are judged anew at every commit."""
        if not watch.shape.guarded:
            return
        state = self.database.state
        own = Context(
            view=context.view, now=context.now, tick=context.tick, actor=watch.actor, session=watch.owner
        )
        context.view = Sight(state.program.policies, own, state.schema)

    # --- a grown or reloaded state ----------------------------------------------------------------------------

    def before_define(self) -> dict[int, dict[Any, Any]]:
        """What watches of actors see now: policies may be about to change."""
        graph = self.database.state.graph
        live = [
            w
            for w in self.hub.watches.values()
            if w.actor is not None and w.status is not WatchStatus.CANCELLED
        ]
        return {watch.number: evaluate(watch, self.own_context(watch, graph)) for watch in live}

    def after_define(self, seen: dict[int, dict[Any, Any]], commit: Commit) -> None:
        """Compile every shape for the new schema, move its watches over, and tell actors what they see now."""
        for key, compiled in list(self._compiled.items()):
            guarded = compiled.shape.guarded or (bool(seen) and bool(self.database.schema.policies))
            actors = [w for w in compiled.shape.index.everything() if w.actor is not None]
            fresh = compile_watch(compiled.request, compiled.options, guarded=guarded and bool(actors))
            self._compiled[key] = fresh
            for watch in compiled.shape.index.everything():
                hub = self._hub_of(watch)
                hub.remove(watch)
                watch.shape = fresh.shape
                hub.add(watch)
        told = Told(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        for number, rows in seen.items():
            watch = self.hub.watches[number]
            watch.details.result = rows
            tell_anew(watch, self.own_context(watch, self.database.state.graph), told)
        self.settle(told, 0)

    def reloaded(self) -> None:
        """The store failed and the last durable state was read again: what was told beyond it never happened."""
        state = self.database.state
        for watch in self.hub.watches.values():
            if watch.status is WatchStatus.CANCELLED:
                continue
            if watch.buffer is not None:
                watch.position -= watch.buffer.forget_after(state.sequence)
            if watch.shape.strategy != "rows":
                self._start_counting(watch, self.own_context(watch, state.graph))

    # --- telling ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit, depth: int) -> None:
        """Work out what a commit means; its watches are woken when it is durable."""
        self.database.history.add(commit)
        shapes = self.hub.concerned(commit.changes)
        if shapes:
            graph = self.database.state.graph
            told = Told(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
            scene = self._scene(self._before(graph, commit.changes), graph, commit.tick)
            checked = self.self_check.choose(shapes)
            told.sample = checked.number if checked is not None else 0
            self.hub.tell(shapes, commit.changes, scene, told)
            if checked is not None:
                self.self_check.compare(checked, scene, told)
            self.settle(told, depth)
        if commit.next_tick > commit.tick and self._holding:
            self._release_held()

    def ticked(self, commit: Commit) -> None:
        """Logical time moved on without a change: watches that look at the time, and events held for a tick."""
        self.committed(commit, 0)

    def _before(self, after: View, changes: Sequence[Difference]) -> Overlay:
        """The state that the changes led away from."""
        before = Overlay(after, self.database.state.layout)
        for old, new in changes:
            if old is not None:
                before.put(old)
            elif new is not None:
                before.drop(new.id)
        return before

    def _scene(self, before: View, after: View, tick: int) -> Scene:
        return Scene(before, after, now=self.database.clock.now, tick=tick, sight=self.put_sight)

    def settle(self, told: Told, depth: int) -> None:
        """After telling: overflows end their watches, triggers are queued, owners are woken when it is durable."""
        for watch in told.overflowed:
            self._overflow(watch)
        if told.triggers:
            self.triggers.add(told.triggers, told.sequence, depth)
        waking = []
        for watch in told.watches.values():
            if watch.options.deliver_on == "tick" and watch.pending:
                self._holding[watch.number] = watch
            if watch.options.on_full == "block" and watch.pending >= watch.options.buffer:
                self._full[watch.number] = watch
            if watch.options.delivery == "reliable" and watch.pending >= watch.options.buffer:
                self._fall_behind(watch, told.sequence)
            if watch.has_details and watch.details.wake is not None:
                waking.append(watch.details.wake)
        if waking:
            self.database.gate.notify(told.sequence, lambda _: [wake() for wake in waking])

    def _fall_behind(self, watch: Watch, sequence: int) -> None:
        """Memory is full: from here on the journal remembers for it, until its owner has taken some."""
        if watch.details.behind is None and watch.number in self.hub.watches:
            watch.details.behind = sequence
            self._hub_of(watch).remove(watch)

    def _release_held(self) -> None:
        """A tick has passed: what waited for it may be handed out."""
        for watch in self._holding.values():
            if watch.buffer is not None:
                watch.buffer.held = 0
            if watch.details.wake is not None:
                watch.details.wake()
        self._holding.clear()

    def _overflow(self, watch: Watch) -> None:
        text = "Buffer full and on_full: error configured; watch cancelled"
        self._lose(watch, text, watch.pending + 1)

    def lost_track(self, watch: Watch) -> None:
        """The journal does not reach back to what the watch has not had yet: never a hole, so it ends."""
        self._lose(
            watch, "What the watch has not had yet is gone from the log; watch cancelled", watch.pending
        )

    def _lose(self, watch: Watch, text: str, dropped: int) -> None:
        fields = {"handle": self.id_of(watch), "buffer_size": watch.options.buffer, "dropped": dropped}
        watch.details.report(WatchError("E8005", text, fields=fields))
        self._end(watch, WatchEventKind.OVERFLOW)

    # --- before the commit ------------------------------------------------------------------------------------

    def show(self, transaction: Transaction) -> None:
        """A statement has written: tell immediate watches what is different in its transaction now."""
        if self.immediate.busy:
            self._show(transaction.unseen(), transaction.view)

    def show_committed(self, transaction: Transaction) -> None:
        """Rules and the commit itself may have added to what immediate watches know."""
        if self.immediate.busy:
            self._show(transaction.unseen(), self.database.state.graph)

    def take_back(self, transaction: Transaction) -> None:
        """A rollback: immediate watches are told the way back."""
        if self.immediate.busy:
            self._show(transaction.seen_only(), self.database.state.graph)

    def _show(self, changes: list[Difference], after: View) -> None:
        shapes = self.immediate.concerned(changes) if changes else []
        if not shapes:
            return
        state = self.database.state
        told = Told(state.tick, self.database.gate.durable_tick, timestamp_to_ms(self.database.clock.now()))
        self.immediate.tell(
            shapes, changes, self._scene(self._before(after, changes), after, state.tick), told
        )
        self.settle(told, 0)

    # --- windows ----------------------------------------------------------------------------------------------

    def _schedule_window(self, watch: Watch) -> None:
        clock, window = self.database.clock, watch.details.window
        due = clock.monotonic() + max(0.0, (window.end - clock.now()).total_seconds())
        watch.details.timer = clock.call_at(due, lambda: self._window_ends(watch))

    def _window_ends(self, watch: Watch) -> None:
        with self.database.turn:
            if watch.status is WatchStatus.CANCELLED or self.database.read_only is not None:
                return
            state = self.database.state
            told = Told(state.tick, state.sequence, timestamp_to_ms(self.database.clock.now()))
            deltas = self._grouped_window(watch) if watch.shape.aggregates else self._event_window(watch)
            for delta in deltas:
                told.deliver(watch, delta)
            self.settle(told, 0)
            self._schedule_window(watch)

    def _event_window(self, watch: Watch) -> list[Delta]:
        start, end, held = watch.details.window.close()
        if not held:
            return []
        delta = Delta("window", None)
        delta.window = (start, end)
        delta.events = [Entry(place, 0, tick, inner) for place, (tick, inner) in enumerate(held, 1)]
        return [delta]

    def _grouped_window(self, watch: Watch) -> list[Delta]:
        """Every group is told at every window end; the first time all of them as `initial`."""
        window, details = watch.details.window, watch.details
        context = self.own_context(watch, self.database.state.graph)
        rows = watch.shape.query.run(context)
        if window.window.kind == "sliding":
            recent = window.recent()
            rows = [row for row in rows if watch.shape.matches.key(row) in recent]
        start, end, _ = window.close()
        new, old = watch.shape.grouped(rows, context), details.told_groups
        details.told_groups = new
        if window.first:
            window.first = False
            delta = Delta("initial", None)
            delta.matches = list(new.values())
            deltas = [delta]
        else:
            deltas = [
                Delta(CHANGED, r, old[i], i) if i in old else Delta(ADDED, r, None, i) for i, r in new.items()
            ]
            deltas += [Delta(REMOVED, r, None, i) for i, r in old.items() if i not in new]
        for delta in deltas:
            delta.window = (start, end)
        return deltas

    # --- handing out ------------------------------------------------------------------------------------------

    def take(self, session: Session, watch: Watch, limit: int | None) -> list[Entry]:
        """Events that are ready, in order. Of a reliable watch, taking more confirms what was taken before."""
        with session.turn:
            reliable = watch.options.delivery == "reliable"
            if reliable and watch.details.unconfirmed:
                self.lasting.confirm(watch, watch.details.unconfirmed[-1].position)
            ready = watch.take(self.database.gate.durable_tick, limit)
            self.recent.extend((watch, entry) for entry in ready)
            if reliable:
                watch.details.unconfirmed.extend(ready)
                if watch.details.behind is not None and watch.pending * 2 < watch.options.buffer:
                    self.lasting.catch_up(watch, watch.details.behind)
            if ready and self._full.pop(watch.number, None) is not None:
                self._room.notify_all()
            return ready

    def take_errors(self, session: Session, watch: Watch) -> list[Any]:
        with session.turn:
            found = list(watch.details.errors)
            watch.details.errors.clear()
        return found

    def session_errors(self, session: Session) -> list[Any]:
        watches = [self.hub.watches.get(number) for number in self._by_session.get(session.id, ())]
        found = [self.take_errors(session, w) for w in watches if w is not None and w.has_details]
        return [error for errors in found for error in errors]

    def confirm(self, session: Session, watch: Watch, position: int) -> None:
        """A reliable watch's events up to this position need not be kept any longer."""
        with session.turn:
            self.lasting.confirm(watch, position)

    def make_room(self, session: Session) -> None:
        """Before a commit: wait while a watch with on_full: block is full, but not for ever, and not for oneself."""
        with session.turn:
            seconds = self.database.settings.block_timeout_seconds
            own = [watch for watch in self._full.values() if watch.owner == session.id]
            if not own and self._room.wait_for(lambda: not self._full, seconds):
                return
            watch = own[0] if own else next(iter(self._full.values()))
            why = "its reader is this session" if own else f"its reader took nothing for {seconds} s"
            text = f"A watch with on_full: block has no room, and {why}: nothing was committed"
            fields = {"handle": self.id_of(watch), "buffer_size": watch.options.buffer, "dropped": 0}
            raise WatchError("E8005", text, fields=fields)

    @property
    def crowded(self) -> bool:
        return bool(self._full)

    # --- managing ---------------------------------------------------------------------------------------------

    def id_of(self, watch: Watch) -> str:
        return self.lasting.id_of(watch) or f"w{self.database.boot:x}_{watch.number:x}"

    def name(self, session: Session, id: str, name: str) -> None:
        """Give a lasting watch a name to attach by."""
        with session.turn:
            watch = self.find(session, id)
            watch.details.name = name
            if watch.details.request is not None:
                self.lasting.rename(watch)

    def text_of(self, watch: Watch) -> str:
        """The watch's statement with its own constants."""

        def own(node: Any) -> Any:
            if isinstance(node, Literal) and node.slot is not None:
                return Literal(watch.constants[node.slot])
            return None

        return print_statement(exchange(watch.shape.resolved.statement, own))

    def find(self, session: Session, id: str) -> Watch:
        """The watch of a handle. Unknown is E8002, somebody else's E8010."""
        watch = self._lookup(id)
        if watch is None:
            raise unknown(id)
        if not self._may_manage(session, watch):
            raise WatchError("E8010", "This watch belongs to another session", fields={"handle": id})
        return watch

    def _lookup(self, id: str) -> Watch | None:
        number = self.lasting.number_of(id)
        head = f"w{self.database.boot:x}_"
        if number is None and id.startswith(head):
            try:
                number = int(id.removeprefix(head), 16)
            except ValueError:
                return None
        return self.hub.watches.get(number) if number is not None else None

    def _may_manage(self, session: Session, watch: Watch) -> bool:
        if watch.owner == session.id or session.actor is None or watch.actor == session.actor:
            return True
        _, guard = execution.statement_context(session, ())
        return guard is not None and guard.allows_meta("SET", "_Watch")

    def may_see_all(self, session: Session) -> bool:
        """Whether the session's actor has META MATCH on `_Watch`."""
        _, guard = execution.statement_context(session, ())
        return guard is not None and guard.allows_meta("MATCH", "_Watch")

    def attach(self, session: Session, handle_or_name: str) -> Watch:
        """Take up a watch again that lasts, by the same actor or the system context; else E8010."""
        with session.turn:
            named = [
                w for w in self.hub.watches.values() if w.has_details and w.details.name == handle_or_name
            ]
            watch = self._lookup(handle_or_name) or next((w for w in named if w.lasts), None)
            if watch is None or watch.status is WatchStatus.CANCELLED:
                raise unknown(handle_or_name)
            if session.actor is not None and session.actor != watch.actor:
                raise WatchError(
                    "E8010", "This watch belongs to another actor", fields={"handle": handle_or_name}
                )
            watch.owner = session.id
            self._by_session.setdefault(session.id, []).append(watch.number)
            if watch.details.unconfirmed:
                watch.put_back(watch.details.unconfirmed)
                watch.delivered -= len(watch.details.unconfirmed)
                watch.details.unconfirmed.clear()
            return watch

    def manage(self, session: Session, watch: Watch, operation: str) -> None:
        """PAUSE, RESUME, CANCEL: take effect at once, outside of any transaction (B24)."""
        with session.turn:
            event = WatchEventKind(operation.lower())
            if event is WatchEventKind.CANCEL:
                self._end(watch, event)
                return
            status = next_status(watch.status, event)
            if status is None:
                raise unknown(self.id_of(watch))
            watch.status = status
            if watch.details.wake is not None:
                watch.details.wake()

    def _end(self, watch: Watch, event: WatchEventKind) -> None:
        status = next_status(watch.status, event)
        if status is None or watch.status is WatchStatus.CANCELLED:
            return
        watch.status = status
        self._cancelled += 1
        if not watch.has_details or watch.details.behind is None:
            self._hub_of(watch).remove(watch)
        if watch.buffer is not None:
            watch.buffer.clear()
        if self._full.pop(watch.number, None) is not None:
            self._room.notify_all()
        self._holding.pop(watch.number, None)
        if watch.has_details:
            self.lasting.forget(watch)
            if watch.details.timer is not None:
                watch.details.timer.cancel()
            if watch.details.wake is not None:
                watch.details.wake()

    def alter(self, request: Request, watch: Watch, given: Sequence[ast.WatchOption]) -> None:
        """ALTER WATCH: buffer, on_full, delivery, filter. A new filter is as if the data had changed."""
        with request.session.turn:
            if next_status(watch.status, WatchEventKind.ALTER) is None:
                raise unknown(self.id_of(watch))
            options = altered_options(request, watch.options, given)
            if options.filter is not watch.options.filter:
                self._refilter(request, watch, options)
            lasted, watch.options = watch.lasts, options
            if watch.lasts and not lasted:
                self.lasting.remember(watch, watch.details.request or request)

    def _refilter(self, request: Request, watch: Watch, options: WatchOptions) -> None:
        compiled = next(c for c in self._compiled.values() if c.shape is watch.shape)
        graph, state = self.database.state.graph, self.database.state
        seen = evaluate(watch, self.own_context(watch, graph))
        fresh = compile_watch(compiled.request, options, guarded=watch.shape.guarded)
        self._compiled[watch.number, "altered"] = fresh
        hub = self._hub_of(watch)
        hub.remove(watch)
        watch.shape = fresh.shape
        given = len(compiled.request.constants)
        known = dict(zip(compiled.captures, watch.constants[given:], strict=True))
        captured = self._capture(request, fresh, None, known)
        watch.constants = watch.constants[:given] + captured
        if watch.shape.strategy in ("groups", "distinct"):
            self._start_counting(watch, self.own_context(watch, graph))
        hub.add(watch)
        told = Told(state.tick, state.sequence, timestamp_to_ms(self.database.clock.now()))
        kept, watch.details.result = watch.details.result, seen
        tell_anew(watch, self.own_context(watch, graph), told)
        if watch.shape.strategy != "reevaluated":
            watch.details.result = kept
        self.settle(told, 0)

    def end_session(self, session: Session) -> None:
        """A session ends: its best-effort watches end with it; reliable ones and triggers go on without an owner."""
        for number in self._by_session.pop(session.id, []):
            watch = self.hub.watches.get(number)
            if watch is None or watch.owner != session.id:
                continue
            if watch.lasts and watch.status is not WatchStatus.CANCELLED:
                watch.owner = None
                watch.details.wake = None
                self._schedule_expiry(watch)
            else:
                self._end(watch, WatchEventKind.CANCEL)
                self.hub.forget(watch)
                self._cancelled -= 1

    def _schedule_expiry(self, watch: Watch) -> None:
        """A reliable watch that nobody takes up again ends after a while; a trigger works without anybody."""
        if watch.details.actions is not None:
            return
        clock = self.database.clock

        def expire() -> None:
            with self.database.turn:
                if watch.owner is None:
                    self._end(watch, WatchEventKind.CANCEL)

        clock.call_at(clock.monotonic() + self.database.settings.watch_retention_seconds, expire)


class _Absent:
    """Stands for the session of a watch that outlived it."""

    actor = None

    def __init__(self, database: Database) -> None:
        self.database = database
        self.id = None
        self.bindings: dict[str, str] = {}


def unknown(id: str) -> WatchError:
    text = "Handle references non-existent or cancelled watch"
    return WatchError("E8002", text, fields={"handle": id})
