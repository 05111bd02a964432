"""Watches of one database: creating and managing them, telling them what commits mean, handing out events.

A commit's events are worked out while its flush is under way and handed out only when it is durable. Watches with
`visibility: immediate` stand in a hub of their own and are told statement by statement.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from threading import Condition
from typing import TYPE_CHECKING, Any

from vedette.element import View
from vedette.engine.context.session_context import AbsentSession
from vedette.engine.layer0.view import LayerView
from vedette.engine.queue_service.service import Consuming
from vedette.engine.state.graph_state import Commit
from vedette.engine.watch_service.catch_up import CatchingUp
from vedette.engine.watch_service.compile import CompiledWatch, compile_watch
from vedette.engine.watch_service.create import WatchCreation
from vedette.engine.watch_service.durable_watches import LastingWatches
from vedette.engine.watch_service.layer0_changes import LayerNews
from vedette.engine.watch_service.manage import WatchManagement
from vedette.engine.watch_service.rights import actor_gone
from vedette.engine.watch_service.self_check import SelfCheck
from vedette.engine.watch_service.triggers import Triggers
from vedette.engine.watch_service.uncommitted import Draft
from vedette.engine.watch_service.windows import WatchWindows
from vedette.errors import VedetteError, WatchError
from vedette.graph.overlay import Overlay
from vedette.graph.transaction import Transaction
from vedette.language.compile.affected_matches import Difference
from vedette.language.compile.execution_context import Context
from vedette.policy.actor_view import Sight
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import Entry, EventBuffer
from vedette.watch.evaluation.effects import Told, WatchHub, compared, tell_anew
from vedette.watch.evaluation.rows import Moment, Scene
from vedette.watch.options import WatchOptions
from vedette.watch.recent_events import Recent
from vedette.watch.status import WatchEventKind, WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session.session import Session

__all__ = ["Watching"]

log = logging.getLogger(__name__)
_SPARE_SHAPES = 256
"""So many shapes that nobody has are no reason to look for them."""
_KNOWN_OPTIONS = 4096
RETAINED_EVENTS = 10_000
"""How many events can still be read as `_WatchEvent` after they were handed out."""


class Watching:
    """The watch side of a database. Methods that take a session wait for the turn; the others are called in it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.hub = WatchHub()
        self.immediate = WatchHub(self.hub)
        """Watches that see transactions before they commit."""
        self.draft = Draft(database)
        self.consuming = Consuming(self)
        self.catching_up = CatchingUp(self)
        self.lasting = LastingWatches(self)
        self.triggers = Triggers(self)
        self.creation = WatchCreation(self)
        self.management = WatchManagement(self)
        self.news = LayerNews(self)
        self.windows = WatchWindows(self)
        self.compiled: dict[Any, CompiledWatch] = {}
        """By the form of the statement (`watch_forms.py`); what was altered by the number of its watch."""
        self._most_compiled = _SPARE_SHAPES
        """So many there may be before those that nobody has are forgotten."""
        self._known_options: dict[WatchOptions, WatchOptions] = {}
        self.by_session: dict[str, dict[int, None]] = {}
        """Session ▸ the numbers of its watches, in order."""
        self.ended: deque[Watch] = deque()
        """Watches that were cancelled, the latest of them: kept for those who ask, and then forgotten."""
        self.self_check = SelfCheck(self, database.settings.self_check_commits)
        self.actors: set[str] = set()
        """Actors who have or had watches."""
        self.cancelled = 0
        """Watches that have ended and are kept for those who ask."""
        self.holding: dict[int, Watch] = {}
        """Watches with events that wait for a tick."""
        self.full: dict[int, Watch] = {}
        """Watches with on_full: block that have no room."""
        self.room = Condition(database.turn)
        self.bells: list[Callable[[Commit], None]] = []
        """Called with every commit, in the turn: for those who only take note that something may have changed."""
        self.recent = Recent(RETAINED_EVENTS)
        """Events that were handed out lately, of all watches: what `_WatchEvent` shows beside those that wait."""

    def shared(self, options: WatchOptions) -> WatchOptions:
        """Equal options are one object: a million watches have a few."""
        if len(self._known_options) >= _KNOWN_OPTIONS:
            self._known_options.clear()
        return self._known_options.setdefault(options, options)

    def forget_unused_shapes(self) -> None:
        """Now and then: whoever makes and ends watches of ever other statements must not fill the memory."""
        if len(self.compiled) <= self._most_compiled:
            return
        used = {id(w.shape) for w in self.hub.watches.values() if w.status is not WatchStatus.CANCELLED}
        latest = next(reversed(self.compiled))  # somebody is about to have it
        self.compiled = {k: c for k, c in self.compiled.items() if id(c.shape) in used or k == latest}
        self._most_compiled = 2 * len(self.compiled) + _SPARE_SHAPES

    def id_of(self, watch: Watch) -> str:
        return self.lasting.id_of(watch) or f"w{self.database.boot:x}_{watch.number:x}"

    def hub_of(self, watch: Watch) -> WatchHub:
        if watch.options.mode == "consume":
            return self.consuming.hub
        return self.immediate if watch.options.visibility == "immediate" else self.hub

    # --- eyes -------------------------------------------------------------------------------------------------

    def own_context(self, watch: Watch, view: View, now: Moment | None = None) -> Context:
        """What the watch looks through; `now`: what time it was then."""
        state = self.database.state
        immediate = watch.options.visibility == "immediate" and watch.options.mode == "watch"
        if view is state.graph and immediate:
            view = self.draft.view
        context = Context(
            view=view,
            constants=watch.constants,
            now=now or self.database.clock.now,
            tick=state.tick,
            actor=watch.actor,
        )
        if watch.shape.guarded or watch.shape.layered:
            self.put_sight(watch, context)
        return context

    def put_sight(self, watch: Watch, context: Context) -> None:
        """The actor's eyes, as they are now: rights are judged anew at every commit."""
        if watch.shape.layered:
            viewer = AbsentSession(self.database, watch.actor)
            context.view = LayerView(context.view, self.database.layer0, viewer)
        if not watch.shape.guarded or watch.actor is None:
            return
        state = self.database.state
        own = Context(
            view=context.view, now=context.now, tick=context.tick, actor=watch.actor, session=watch.owner
        )
        context.view = Sight(state.program.policies, own, state.schema)

    # --- a grown or reloaded state ----------------------------------------------------------------------------

    def before_define(self) -> dict[int, dict[Any, Any]]:
        """What watches of actors see now: policies may be about to change. Open transactions will be rolled back."""
        for transaction in self.draft.open():
            self.show_end(transaction)
        graph = self.database.state.graph
        live = [
            w
            for w in self.hub.watches.values()
            if w.actor is not None and w.status is not WatchStatus.CANCELLED and w.options.mode == "watch"
        ]
        return {watch.number: compared(watch, self.own_context(watch, graph)) for watch in live}

    def after_define(self, seen: dict[int, dict[Any, Any]], commit: Commit) -> None:
        """Compile every shape for the new schema, move its watches over, and tell actors what they see now."""
        not_standing = [w for w in self.hub.watches.values() if w.has_details and w.details.away]
        for key, compiled in list(self.compiled.items()):
            away = [watch for watch in not_standing if watch.shape is compiled.shape]
            standing = compiled.shape.index.everything()
            actors = any(watch.actor is not None for watch in (*standing, *away))
            guarded = compiled.shape.guarded or (actors and bool(self.database.schema.policies))
            fresh = compile_watch(compiled.request, compiled.options, guarded=guarded)
            self.compiled[key] = fresh
            for watch in standing:
                self.hub_of(watch).remove(watch)
            for watch in (*standing, *away):
                watch.shape = fresh.shape
                fresh.equip(watch)
            for watch in standing:
                self.hub_of(watch).add(watch)
        told = Told(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        graph = self.database.state.graph
        defined = (
            self._before(graph, commit.changes) if commit.changes else graph
        )  # new values are told as a commit
        for number, rows in seen.items():
            watch = self.hub.watches[number]
            if watch.details.behind is not None:
                continue
            watch.details.result = rows
            tell_anew(watch, self.own_context(watch, defined), told)
            self.count_anew(watch, defined)
        self.settle(told, 0)
        self.consuming.refresh_all()
        self.news.ontology_changed()

    def reloaded(self) -> None:
        """The store failed and the last durable state was read again: what was told beyond it never happened."""
        state = self.database.state
        self.consuming.reloaded(self.database.stored_meta)
        for watch in self.hub.watches.values():
            if watch.status is WatchStatus.CANCELLED or watch.options.mode == "consume":
                continue
            if watch.options.visibility == "immediate":  # its owner may have had what never was
                self.catching_up.skip_ahead(watch)
                continue
            if watch.buffer is not None:
                watch.position -= watch.buffer.forget_after(state.sequence)
            self.count_anew(watch, state.graph)

    def count_anew(self, watch: Watch, view: View) -> None:
        """Take up the state as it is, without telling: what a counting watch keeps is made from it."""
        if watch.shape.strategy != "rows":
            self.creation.start_counting(watch, self.own_context(watch, view))
        elif watch.has_details:
            watch.details.result = None

    # --- telling ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit, depth: int) -> None:
        """Work out what a commit means; its watches are woken when it is durable."""
        self.database.history.add(commit)
        changes = commit.changes
        shapes = self.hub.concerned(changes)
        if shapes:
            told = Told(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
            now = self._one_moment(told) if self.hub.looks_at_time or self.windows.open else None
            scene = self.scene(self.database.state.graph, changes, commit.tick, now)
            checked = self.self_check.choose(shapes)
            if checked is not None:
                told.sample = checked.number
            self.hub.tell(shapes, changes, scene, told)
            if checked is not None:
                self.self_check.compare(checked, scene, told)
            self.settle(told, depth)
        if self.consuming.busy:
            self.consuming.committed(commit)
        if self.immediate.shapes:
            self._show(self.draft.landed(changes))
        if self.hub.layered:
            self.news.committed()
        if self.actors:
            self._end_with_actors(commit.changes)
        if commit.next_tick > commit.tick and self.holding:
            self._release_held()
        if self.bells:
            for bell in self.bells:
                bell(commit)

    def _end_with_actors(self, changes: Sequence[Difference]) -> None:
        """Nothing is told or done for an actor that was deleted: its watches end."""
        gone = {before.id for before, after in changes if after is None and before is not None}
        gone.intersection_update(self.actors)
        if gone:
            self.actors -= gone
            for watch in [w for w in self.hub.watches.values() if w.actor in gone]:
                self.fail(watch, actor_gone())

    def _one_moment(self, told: Told) -> Moment:
        """now() for a whole commit: what looks at the time was evaluated then, and it belongs to the window of then."""
        moment = self.database.clock.now()
        told.evaluated_ms = timestamp_to_ms(moment)
        return lambda: moment

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
                before.drop(new.id, node=new.targets is None)
        return before

    def scene(
        self, after: View, changes: Sequence[Difference], tick: int, now: Moment | None = None
    ) -> Scene:
        """The state before is put together only when somebody looks at it."""
        return Scene(
            lambda: self._before(after, changes), after, now or self.database.clock.now, tick, self.put_sight
        )

    def settle(self, told: Told, depth: int) -> None:
        """After telling: overflows end their watches, triggers are queued, owners are woken when it is durable."""
        if told.overflowed:
            for watch, events in Counter(told.overflowed).items():
                self.overflow(watch, events)
        for watch, error in told.failed.values():
            self.fail(watch, error)
        if told.triggers:
            self.triggers.add(told, depth)
        waking = []
        for watch in told.watches.values():
            options = watch.options
            if options.deliver_on == "tick" and watch.buffer is not None:
                self._hold_for_tick(watch, watch.buffer, told.tick)
            if options.on_full == "block" and watch.pending >= options.buffer and watch.owner is not None:
                self.full[watch.number] = watch
            if options.delivery == "reliable" and watch.pending >= options.buffer:
                self._fall_behind(watch, told.sequence)
            details = watch.known_details
            if details is not None and details.wake is not None:
                waking.append(details.wake)
        if waking:
            self.database.gate.notify(told.sequence, lambda _: [wake() for wake in waking], hurry=False)

    def _hold_for_tick(self, watch: Watch, buffer: EventBuffer, tick: int) -> None:
        """What belongs to the present tick waits for its end; what comes late, or where commits are ticks, does not."""
        state = self.database.state
        if state.ticks_by_commit or tick < state.tick:
            buffer.held = 0
        else:
            self.holding[watch.number] = watch

    def _fall_behind(self, watch: Watch, sequence: int) -> None:
        """Memory is full: from here on the journal remembers for it, until its owner has taken some."""
        details = watch.details
        if details.behind is None and watch.number in self.hub.watches:
            details.behind, details.away = sequence, details.actions is None  # actions wait for no reader
            if details.away:
                self.hub_of(watch).remove(watch)

    def _release_held(self) -> None:
        """A tick has passed: what waited for it may be handed out."""
        for watch in self.holding.values():
            if watch.buffer is not None:
                watch.buffer.held = 0
            if watch.details.wake is not None:
                watch.details.wake()
        self.holding.clear()

    def fail(self, watch: Watch, error: VedetteError) -> None:
        """A division by zero and the like: MATCH would raise, the watch ends and says why. The commit stands."""
        if watch.status is WatchStatus.CANCELLED:
            return
        watch.details.report(error)
        self.management.end(watch, WatchEventKind.FAIL)
        log.warning(
            "Watch %s cannot be evaluated and was cancelled: %s",
            self.id_of(watch),
            error,
            extra={
                "action": "watch.failed",
                "tenant": self.database.name,
                "watch": self.id_of(watch),
                "code": error.code,
            },
        )

    def overflow(self, watch: Watch, events: int) -> None:
        text = "Buffer full and on_full: error configured; watch cancelled"
        self._lose(watch, text, watch.pending + events)

    def lost_track(self, watch: Watch) -> None:
        """The journal does not reach back to what the watch has not had yet: never a hole, so it ends."""
        self._lose(
            watch, "What the watch has not had yet is gone from the log; watch cancelled", watch.pending
        )

    def _lose(self, watch: Watch, text: str, dropped: int) -> None:
        fields = {"handle": self.id_of(watch), "buffer_size": watch.options.buffer, "dropped": dropped}
        watch.details.report(WatchError("E8005", text, fields=fields))
        self.management.end(watch, WatchEventKind.OVERFLOW)

    # --- before the commit ------------------------------------------------------------------------------------

    def see_drafts(self) -> None:
        """Before the first immediate watch comes: nobody has looked at what open transactions wrote so far."""
        if not self.immediate.shapes:
            for session in self.database.sessions.values():
                if session.transaction is not None and session.transaction.aborted is None:
                    self.draft.written(session.transaction.transaction)

    def show(self, transaction: Transaction) -> None:
        """A statement has written: tell immediate watches what is different now."""
        if self.immediate.shapes:
            self._show(self.draft.written(transaction))

    def show_end(self, transaction: Transaction) -> None:
        """A transaction has ended: after a rollback immediate watches are told the way back."""
        if transaction.shown:
            self._show(self.draft.ended(transaction))

    def _show(self, changes: list[Difference]) -> None:
        shapes = self.immediate.concerned(changes) if changes else []
        if not shapes:
            return
        state, after = self.database.state, self.draft.view
        told = Told(state.tick, self.database.gate.durable_tick, timestamp_to_ms(self.database.clock.now()))
        scene = self.scene(after, changes, state.tick)
        self.immediate.tell(shapes, changes, scene, told)
        self.settle(told, 0)

    # --- handing out ------------------------------------------------------------------------------------------

    def take(self, session: Session, watch: Watch, limit: int | None) -> list[Entry]:
        """Events that are ready, in order. Of a reliable watch, taking more confirms what was taken before."""
        with session.turn:
            if watch.owner != session.id:
                self._check_own(session, watch)
                return []
            if watch.actor is not None and self.database.state.graph.get(watch.actor) is None:
                self.fail(watch, actor_gone())
                return []
            if watch.options.mode == "consume":
                ready = self.consuming.take(watch, limit)
                self.recent.keep(watch, ready)
                return ready
            reliable = watch.options.delivery == "reliable"
            if reliable and watch.details.unconfirmed:
                self.lasting.confirm(watch, watch.details.unconfirmed[-1].position)
            ready = watch.take(self.database.gate.durable_tick, limit)
            self.recent.keep(watch, ready)
            if reliable:
                watch.details.unconfirmed.extend(ready)
                if watch.details.behind is not None and watch.pending * 2 < watch.options.buffer:
                    self.catching_up.catch_up(watch, watch.details.behind)
            if ready:
                self.has_room(watch)
            return ready

    def _check_own(self, session: Session, watch: Watch) -> None:
        """A watch has one reader: what another session has taken up is told there, and only there."""
        if watch.status is not WatchStatus.CANCELLED and not session.closed:
            text = "Another session has taken this watch up: attach it to have it back"
            raise WatchError("E8010", text, fields={"handle": self.id_of(watch)})

    def is_idle(self, session: Session, watch: Watch) -> bool:
        with session.turn:
            busy = watch.has_details and (watch.details.unconfirmed or watch.details.behind is not None)
            return not watch.pending and not busy

    def take_errors(self, session: Session, watch: Watch) -> list[Any]:
        with session.turn:
            found = list(watch.details.errors)
            watch.details.errors.clear()
        return found

    def session_errors(self, session: Session) -> list[Any]:
        watches = [self.hub.watches.get(number) for number in self.by_session.get(session.id, ())]
        found = [self.take_errors(session, w) for w in watches if w is not None and w.has_details]
        return [error for errors in found for error in errors]

    def confirm(self, session: Session, watch: Watch, position: int) -> None:
        """A reliable watch's events up to this position need not be kept any longer."""
        with session.turn:
            if watch.owner == session.id:
                self.lasting.confirm(watch, position)

    def has_room(self, watch: Watch) -> None:
        """It holds nobody up any more: somebody has read, or nobody is there to do so."""
        if self.full.pop(watch.number, None) is not None:
            self.room.notify_all()

    def make_room(self, session: Session) -> None:
        """Before a commit: wait while a watch with on_full: block is full, but not for ever, and not for oneself."""
        with session.turn:
            seconds = self.database.settings.block_timeout_seconds
            own = [watch for watch in self.full.values() if watch.owner == session.id]
            if not own and self.room.wait_for(lambda: not self.full, seconds):
                return
            for other in [w for w in self.full.values() if w.actor is not None and w.actor != session.actor]:
                self.overflow(other, 0)  # nobody stops the others' work for longer than that
            if not self.full:
                return
            watch = own[0] if own else next(iter(self.full.values()))
            why = "its reader is this session" if own else f"its reader took nothing for {seconds} s"
            text = f"A watch with on_full: block has no room, and {why}: nothing was committed"
            fields: dict[str, Any] = {"buffer_size": watch.options.buffer, "dropped": 0}
            if session.actor is None or watch.actor == session.actor:
                fields["handle"] = self.id_of(watch)
            raise WatchError("E8005", text, fields=fields)
