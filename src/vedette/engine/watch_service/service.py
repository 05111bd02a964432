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
from vedette.engine.context.session_context import DetachedViewer
from vedette.engine.layer0.view import Layer0View
from vedette.engine.queue_service.service import QueueService
from vedette.engine.state.graph_state import Commit
from vedette.engine.watch_service.catch_up import CatchUp
from vedette.engine.watch_service.compile import CompiledWatch, compile_watch
from vedette.engine.watch_service.create import WatchCreation
from vedette.engine.watch_service.durable_watches import DurableWatches
from vedette.engine.watch_service.layer0_changes import Layer0Changes
from vedette.engine.watch_service.manage import WatchManagement
from vedette.engine.watch_service.rights import actor_deleted_error
from vedette.engine.watch_service.self_check import SelfCheck
from vedette.engine.watch_service.triggers import TriggerQueue
from vedette.engine.watch_service.uncommitted import UncommittedView
from vedette.engine.watch_service.windows import WindowTimers
from vedette.errors import VedetteError, WatchError
from vedette.graph.overlay import Overlay
from vedette.graph.transaction import Transaction
from vedette.language.compile.affected_matches import ElementChange
from vedette.language.compile.execution_context import ExecutionContext
from vedette.policy.actor_view import ActorView
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import BufferedEvent, EventBuffer
from vedette.watch.evaluation.effects import CommitEffects, ShapeIndex, comparable_rows, reevaluate
from vedette.watch.evaluation.rows import CommitViews, NowFunction
from vedette.watch.options import WatchOptions
from vedette.watch.recent_events import RecentEvents
from vedette.watch.status import StatusEvent, WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session.session import Session

__all__ = ["WatchService"]

log = logging.getLogger(__name__)
_MIN_UNUSED_SHAPES = 256
"""So many shapes that nobody has are no reason to look for them."""
_KNOWN_OPTIONS = 4096
RETAINED_EVENTS = 10_000
"""How many events can still be read as `_WatchEvent` after they were handed out."""


class WatchService:
    """The watch side of a database. Methods that take a session wait for the turn; the others are called in it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.committed_index = ShapeIndex()
        self.uncommitted_index = ShapeIndex(self.committed_index)
        """Watches that see transactions before they commit."""
        self.draft = UncommittedView(database)
        self.consuming = QueueService(self)
        self.catching_up = CatchUp(self)
        self.lasting = DurableWatches(self)
        self.triggers = TriggerQueue(self)
        self.creation = WatchCreation(self)
        self.management = WatchManagement(self)
        self.news = Layer0Changes(self)
        self.windows = WindowTimers(self)
        self.compiled_watches: dict[Any, CompiledWatch] = {}
        """By the form of the statement (`watch_forms.py`); what was altered by the number of its watch."""
        self._cleanup_above = _MIN_UNUSED_SHAPES
        """So many there may be before those that nobody has are forgotten."""
        self._known_options: dict[WatchOptions, WatchOptions] = {}
        self.by_session: dict[str, dict[int, None]] = {}
        """Session ▸ the numbers of its watches, in order."""
        self.ended_watches: deque[Watch] = deque()
        """Watches that were cancelled, the latest of them: kept for those who ask, and then forgotten."""
        self.self_check = SelfCheck(self, database.settings.self_check_commits)
        self.watching_actors: set[str] = set()
        """Actors who have or had watches."""
        self.ended_count = 0
        """Watches that have ended and are kept for those who ask."""
        self.tick_held_watches: dict[int, Watch] = {}
        """Watches with events that wait for a tick."""
        self.blocking_watches: dict[int, Watch] = {}
        """Watches with on_full: block that have no room."""
        self.room_available = Condition(database.lock)
        self.commit_hooks: list[Callable[[Commit], None]] = []
        """Called with every commit, in the turn: for those who only take note that something may have changed."""
        self.recent_events = RecentEvents(RETAINED_EVENTS)
        """Events that were handed out lately, of all watches: what `_WatchEvent` shows beside those that wait."""

    def intern_options(self, options: WatchOptions) -> WatchOptions:
        """Equal options are one object: a million watches have a few."""
        if len(self._known_options) >= _KNOWN_OPTIONS:
            self._known_options.clear()
        return self._known_options.setdefault(options, options)

    def forget_unused_shapes(self) -> None:
        """Now and then: whoever makes and ends watches of ever other statements must not fill the memory."""
        if len(self.compiled_watches) <= self._cleanup_above:
            return
        used = {
            id(w.shape)
            for w in self.committed_index.watches.values()
            if w.status is not WatchStatus.CANCELLED
        }
        latest = next(reversed(self.compiled_watches))  # somebody is about to have it
        self.compiled_watches = {
            k: c for k, c in self.compiled_watches.items() if id(c.shape) in used or k == latest
        }
        self._cleanup_above = 2 * len(self.compiled_watches) + _MIN_UNUSED_SHAPES

    def id_of(self, watch: Watch) -> str:
        return self.lasting.id_of(watch) or f"w{self.database.boot:x}_{watch.number:x}"

    def index_of(self, watch: Watch) -> ShapeIndex:
        if watch.options.mode == "consume":
            return self.consuming.hub
        return self.uncommitted_index if watch.options.visibility == "immediate" else self.committed_index

    # --- eyes -------------------------------------------------------------------------------------------------

    def watch_context(self, watch: Watch, view: View, now: NowFunction | None = None) -> ExecutionContext:
        """What the watch looks through; `now`: what time it was then."""
        state = self.database.state
        immediate = watch.options.visibility == "immediate" and watch.options.mode == "watch"
        if view is state.graph and immediate:
            view = self.draft.view
        context = ExecutionContext(
            view=view,
            constants=watch.constants,
            now=now or self.database.clock.now,
            tick=state.tick,
            actor=watch.actor,
        )
        if watch.shape.checks_policies or watch.shape.reads_layer0:
            self.apply_policy_view(watch, context)
        return context

    def apply_policy_view(self, watch: Watch, context: ExecutionContext) -> None:
        """The actor's eyes, as they are now: rights are judged anew at every commit."""
        if watch.shape.reads_layer0:
            viewer = DetachedViewer(self.database, watch.actor)
            context.view = Layer0View(context.view, self.database.layer0, viewer)
        if not watch.shape.checks_policies or watch.actor is None:
            return
        state = self.database.state
        own = ExecutionContext(
            view=context.view, now=context.now, tick=context.tick, actor=watch.actor, session=watch.session_id
        )
        context.view = ActorView(state.program.policies, own, state.schema)

    # --- a grown or reloaded state ----------------------------------------------------------------------------

    def before_define(self) -> dict[int, dict[Any, Any]]:
        """What watches of actors see now: policies may be about to change. Open transactions will be rolled back."""
        for transaction in self.draft.open_transactions():
            self.retract_uncommitted(transaction)
        graph = self.database.state.graph
        live = [
            w
            for w in self.committed_index.watches.values()
            if w.actor is not None and w.status is not WatchStatus.CANCELLED and w.options.mode == "watch"
        ]
        return {watch.number: comparable_rows(watch, self.watch_context(watch, graph)) for watch in live}

    def after_define(self, seen: dict[int, dict[Any, Any]], commit: Commit) -> None:
        """Compile every shape for the new schema, move its watches over, and tell actors what they see now."""
        not_standing = [
            w for w in self.committed_index.watches.values() if w.has_details and w.details.is_unindexed
        ]
        for key, compiled in list(self.compiled_watches.items()):
            away = [watch for watch in not_standing if watch.shape is compiled.shape]
            standing = compiled.shape.ShapeIndex.all_watches()
            actors = any(watch.actor is not None for watch in (*standing, *away))
            guarded = compiled.shape.checks_policies or (actors and bool(self.database.schema.policies))
            fresh = compile_watch(compiled.request, compiled.options, guarded=guarded)
            self.compiled_watches[key] = fresh
            for watch in standing:
                self.index_of(watch).remove(watch)
            for watch in (*standing, *away):
                watch.shape = fresh.shape
                fresh.attach_actions(watch)
            for watch in standing:
                self.index_of(watch).add(watch)
        told = CommitEffects(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        graph = self.database.state.graph
        defined = (
            self._before(graph, commit.changes) if commit.changes else graph
        )  # new values are told as a commit
        for number, rows in seen.items():
            watch = self.committed_index.watches[number]
            if watch.details.followed_sequence is not None:
                continue
            watch.details.last_result = rows
            reevaluate(watch, self.watch_context(watch, defined), told)
            self.rebuild_counts(watch, defined)
        self.apply_effects(told, 0)
        self.consuming.refresh_all()
        self.news.ontology_changed()

    def rebuild(self) -> None:
        """The store failed and the last durable state was read again: what was told beyond it never happened."""
        state = self.database.state
        self.consuming.reloaded(self.database.stored_notes)
        for watch in self.committed_index.watches.values():
            if watch.status is WatchStatus.CANCELLED or watch.options.mode == "consume":
                continue
            if watch.options.visibility == "immediate":  # its owner may have had what never was
                self.catching_up.restart_from_snapshot(watch)
                continue
            if watch.buffer is not None:
                watch.position -= watch.buffer.discard_after(state.sequence)
            self.rebuild_counts(watch, state.graph)

    def rebuild_counts(self, watch: Watch, view: View) -> None:
        """Take up the state as it is, without telling: what a counting watch keeps is made from it."""
        if watch.shape.strategy != "rows":
            self.creation.rebuild_counts(watch, self.watch_context(watch, view))
        elif watch.has_details:
            watch.details.last_result = None

    # --- telling ----------------------------------------------------------------------------------------------

    def follow(self, commit: Commit, depth: int) -> None:
        """Work out what a commit means; its watches are woken when it is durable."""
        self.database.history.add(commit)
        changes = commit.changes
        shapes = self.committed_index.affected_shapes(changes)
        if shapes:
            told = CommitEffects(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
            now = (
                self._evaluation_time(told)
                if self.committed_index.has_time_dependent_shapes or self.windows.windowed_watches
                else None
            )
            scene = self.commit_views(self.database.state.graph, changes, commit.tick, now)
            checked = self.self_check.pick_watch(shapes)
            if checked is not None:
                told.sample = checked.number
            self.committed_index.evaluate_commit(shapes, changes, scene, told)
            if checked is not None:
                self.self_check.check(checked, scene, told)
            self.apply_effects(told, depth)
        if self.consuming.is_active:
            self.consuming.committed(commit)
        if self.uncommitted_index.shapes:
            self._show(self.draft.visible_changes(changes))
        if self.committed_index.layer0_shapes:
            self.news.committed()
        if self.watching_actors:
            self._end_for_deleted_actors(commit.changes)
        if commit.next_tick > commit.tick and self.tick_held_watches:
            self._release_at_tick()
        if self.commit_hooks:
            for bell in self.commit_hooks:
                bell(commit)

    def _end_for_deleted_actors(self, changes: Sequence[ElementChange]) -> None:
        """Nothing is told or done for an actor that was deleted: its watches end."""
        gone = {before.id for before, after in changes if after is None and before is not None}
        gone.intersection_update(self.watching_actors)
        if gone:
            self.watching_actors -= gone
            for watch in [w for w in self.committed_index.watches.values() if w.actor in gone]:
                self.fail(watch, actor_deleted_error())

    def _evaluation_time(self, told: CommitEffects) -> NowFunction:
        """now() for a whole commit: what looks at the time was evaluated then, and it belongs to the window of then."""
        moment = self.database.clock.now()
        told.evaluated_at_ms = timestamp_to_ms(moment)
        return lambda: moment

    def ticked(self, commit: Commit) -> None:
        """Logical time moved on without a change: watches that look at the time, and events held for a tick."""
        self.follow(commit, 0)

    def _before(self, after: View, changes: Sequence[ElementChange]) -> Overlay:
        """The state that the changes led away from."""
        before = Overlay(after, self.database.state.layout)
        for old, new in changes:
            if old is not None:
                before.put(old)
            elif new is not None:
                before.delete(new.id, node=new.targets is None)
        return before

    def commit_views(
        self, after: View, changes: Sequence[ElementChange], tick: int, now: NowFunction | None = None
    ) -> CommitViews:
        """The state before is put together only when somebody looks at it."""
        return CommitViews(
            lambda: self._before(after, changes),
            after,
            now or self.database.clock.now,
            tick,
            self.apply_policy_view,
        )

    def apply_effects(self, told: CommitEffects, depth: int) -> None:
        """After telling: overflows end their watches, triggers are queued, owners are woken when it is durable."""
        if told.overflowed:
            for watch, events in Counter(told.overflowed).items():
                self.overflow(watch, events)
        for watch, error in told.failures.values():
            self.fail(watch, error)
        if told.triggers:
            self.triggers.add(told, depth)
        waking = []
        for watch in told.notified.values():
            options = watch.options
            if options.deliver_on == "tick" and watch.buffer is not None:
                self._hold_until_tick(watch, watch.buffer, told.tick)
            if (
                options.on_full == "block"
                and watch.buffered_count >= options.buffer
                and watch.session_id is not None
            ):
                self.blocking_watches[watch.number] = watch
            if options.delivery == "reliable" and watch.buffered_count >= options.buffer:
                self._mark_lagging(watch, told.sequence)
            details = watch.known_details
            if details is not None and details.wakeup is not None:
                waking.append(details.wakeup)
        if waking:
            self.database.log_writer.call_when_durable(
                told.sequence, lambda _: [wake() for wake in waking], flush_now=False
            )

    def _hold_until_tick(self, watch: Watch, buffer: EventBuffer, tick: int) -> None:
        """What belongs to the present tick waits for its end; what comes late, or where commits are ticks, does not."""
        state = self.database.state
        if state.tick_per_commit or tick < state.tick:
            buffer.held_for_tick = 0
        else:
            self.tick_held_watches[watch.number] = watch

    def _mark_lagging(self, watch: Watch, sequence: int) -> None:
        """Memory is full: from here on the journal remembers for it, until its owner has taken some."""
        details = watch.details
        if details.followed_sequence is None and watch.number in self.committed_index.watches:
            details.followed_sequence, details.is_unindexed = (
                sequence,
                details.actions is None,
            )  # actions wait for no reader
            if details.is_unindexed:
                self.index_of(watch).remove(watch)

    def _release_at_tick(self) -> None:
        """A tick has passed: what waited for it may be handed out."""
        for watch in self.tick_held_watches.values():
            if watch.buffer is not None:
                watch.buffer.held_for_tick = 0
            if watch.details.wakeup is not None:
                watch.details.wakeup()
        self.tick_held_watches.clear()

    def fail(self, watch: Watch, error: VedetteError) -> None:
        """A division by zero and the like: MATCH would raise, the watch ends and says why. The commit stands."""
        if watch.status is WatchStatus.CANCELLED:
            return
        watch.details.add_error(error)
        self.management.end(watch, StatusEvent.FAIL)
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
        self._end_with_overflow(watch, text, watch.buffered_count + events)

    def end_after_trim(self, watch: Watch) -> None:
        """The journal does not reach back to what the watch has not had yet: never a hole, so it ends."""
        self._end_with_overflow(
            watch,
            "What the watch has not had yet is gone from the log; watch cancelled",
            watch.buffered_count,
        )

    def _end_with_overflow(self, watch: Watch, text: str, dropped: int) -> None:
        fields = {"handle": self.id_of(watch), "buffer_size": watch.options.buffer, "dropped": dropped}
        watch.details.add_error(WatchError("E8005", text, fields=fields))
        self.management.end(watch, StatusEvent.OVERFLOW)

    # --- before the commit ------------------------------------------------------------------------------------

    def load_open_transactions(self) -> None:
        """Before the first immediate watch comes: nobody has looked at what open transactions wrote so far."""
        if not self.uncommitted_index.shapes:
            for session in self.database.sessions.values():
                if session.transaction is not None and session.transaction.abort_reason is None:
                    self.draft.apply_writes(session.transaction.transaction)

    def publish_uncommitted(self, transaction: Transaction) -> None:
        """A statement has written: tell immediate watches what is different now."""
        if self.uncommitted_index.shapes:
            self._show(self.draft.apply_writes(transaction))

    def retract_uncommitted(self, transaction: Transaction) -> None:
        """A transaction has ended: after a rollback immediate watches are told the way back."""
        if transaction.published:
            self._show(self.draft.remove_writes(transaction))

    def _show(self, changes: list[ElementChange]) -> None:
        shapes = self.uncommitted_index.affected_shapes(changes) if changes else []
        if not shapes:
            return
        state, after = self.database.state, self.draft.view
        told = CommitEffects(
            state.tick, self.database.log_writer.durable_sequence, timestamp_to_ms(self.database.clock.now())
        )
        scene = self.commit_views(after, changes, state.tick)
        self.uncommitted_index.evaluate_commit(shapes, changes, scene, told)
        self.apply_effects(told, 0)

    # --- handing out ------------------------------------------------------------------------------------------

    def take(self, session: Session, watch: Watch, limit: int | None) -> list[BufferedEvent]:
        """Events that are ready, in order. Of a reliable watch, taking more confirms what was taken before."""
        with session.lock_scope:
            if watch.session_id != session.id:
                self._check_owner(session, watch)
                return []
            if watch.actor is not None and self.database.state.graph.get(watch.actor) is None:
                self.fail(watch, actor_deleted_error())
                return []
            if watch.options.mode == "consume":
                ready = self.consuming.deliver(watch, limit)
                self.recent_events.add(watch, ready)
                return ready
            reliable = watch.options.delivery == "reliable"
            if reliable and watch.details.unconfirmed:
                self.lasting.confirm(watch, watch.details.unconfirmed[-1].position)
            ready = watch.take_events(self.database.log_writer.durable_sequence, limit)
            self.recent_events.add(watch, ready)
            if reliable:
                watch.details.unconfirmed.extend(ready)
                if (
                    watch.details.followed_sequence is not None
                    and watch.buffered_count * 2 < watch.options.buffer
                ):
                    self.catching_up.catch_up(watch, watch.details.followed_sequence)
            if ready:
                self.unblock_writers(watch)
            return ready

    def _check_owner(self, session: Session, watch: Watch) -> None:
        """A watch has one reader: what another session has taken up is told there, and only there."""
        if watch.status is not WatchStatus.CANCELLED and not session.closed:
            text = "Another session has taken this watch up: attach it to have it back"
            raise WatchError("E8010", text, fields={"handle": self.id_of(watch)})

    def is_idle(self, session: Session, watch: Watch) -> bool:
        with session.lock_scope:
            busy = watch.has_details and (
                watch.details.unconfirmed or watch.details.followed_sequence is not None
            )
            return not watch.buffered_count and not busy

    def take_errors(self, session: Session, watch: Watch) -> list[Any]:
        with session.lock_scope:
            found = list(watch.details.errors)
            watch.details.errors.clear()
        return found

    def session_errors(self, session: Session) -> list[Any]:
        watches = [self.committed_index.watches.get(number) for number in self.by_session.get(session.id, ())]
        found = [self.take_errors(session, w) for w in watches if w is not None and w.has_details]
        return [error for errors in found for error in errors]

    def confirm(self, session: Session, watch: Watch, position: int) -> None:
        """A reliable watch's events up to this position need not be kept any longer."""
        with session.lock_scope:
            if watch.session_id == session.id:
                self.lasting.confirm(watch, position)

    def unblock_writers(self, watch: Watch) -> None:
        """It holds nobody up any more: somebody has read, or nobody is there to do so."""
        if self.blocking_watches.pop(watch.number, None) is not None:
            self.room_available.notify_all()

    def wait_for_room(self, session: Session) -> None:
        """Before a commit: wait while a watch with on_full: block is full, but not for ever, and not for oneself."""
        with session.lock_scope:
            seconds = self.database.settings.block_timeout_seconds
            own = [watch for watch in self.blocking_watches.values() if watch.session_id == session.id]
            if not own and self.room_available.wait_for(lambda: not self.blocking_watches, seconds):
                return
            for other in [
                w for w in self.blocking_watches.values() if w.actor is not None and w.actor != session.actor
            ]:
                self.overflow(other, 0)  # nobody stops the others' work for longer than that
            if not self.blocking_watches:
                return
            watch = own[0] if own else next(iter(self.blocking_watches.values()))
            why = "its reader is this session" if own else f"its reader took nothing for {seconds} s"
            text = f"A watch with on_full: block has no room, and {why}: nothing was committed"
            fields: dict[str, Any] = {"buffer_size": watch.options.buffer, "dropped": 0}
            if session.actor is None or watch.actor == session.actor:
                fields["handle"] = self.id_of(watch)
            raise WatchError("E8005", text, fields=fields)
