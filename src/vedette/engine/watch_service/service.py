"""Watches of one database: creation and management, evaluation of commits, delivery of events.

Events of a commit are computed while it is being flushed and are delivered when it is durable. Watches with
`visibility: immediate` have their own index and are evaluated after each statement.
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
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.compile.union_view import ElementChange
from vedette.policy.actor_view import ActorView
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import BufferedEvent, EventBuffer
from vedette.watch.evaluation.commit_views import CommitViews, NowFunction
from vedette.watch.evaluation.effects import CommitEffects
from vedette.watch.evaluation.reevaluation import comparable_rows, reevaluate
from vedette.watch.options import WatchOptions
from vedette.watch.recent_events import RecentEvents
from vedette.watch.shape_index import ShapeIndex
from vedette.watch.status import StatusEvent, WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session.session import Session

__all__ = ["WatchService"]

log = logging.getLogger(__name__)
_MIN_UNUSED_SHAPES = 256
"""Unused compiled shapes are removed only above this number."""
_KNOWN_OPTIONS = 4096
RETAINED_EVENTS = 10_000
"""Number of delivered events that can still be read as `_WatchEvent`."""


class WatchService:
    """The watches of a database.

    Methods that take a session acquire the engine lock; call the others with it held.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.committed_index = ShapeIndex()
        self.uncommitted_index = ShapeIndex(self.committed_index)
        """Watches that see transactions before they commit."""
        self.uncommitted_view = UncommittedView(database)
        self.consuming = QueueService(self)
        self.catch_up = CatchUp(self)
        self.durable_watches = DurableWatches(self)
        self.triggers = TriggerQueue(self)
        self.creation = WatchCreation(self)
        self.management = WatchManagement(self)
        self.layer0_changes = Layer0Changes(self)
        self.windows = WindowTimers(self)
        self.compiled_watches: dict[Any, CompiledWatch] = {}
        """By the normalized statement (`normalize.py`); altered watches by their number."""
        self._cleanup_above = _MIN_UNUSED_SHAPES
        """Unused shapes are removed when there are more compiled watches than this."""
        self._known_options: dict[WatchOptions, WatchOptions] = {}
        self.by_session: dict[str, dict[int, None]] = {}
        """Session ▸ the numbers of its watches, in order."""
        self.ended_watches: deque[Watch] = deque()
        """The latest cancelled watches, kept for `_Watch`."""
        self.self_check = SelfCheck(self, database.settings.self_check_commits)
        self.watching_actors: set[str] = set()
        """Actors that have or had watches."""
        self.ended_count = 0
        """Number of ended watches that are kept for `_Watch`."""
        self.tick_held_watches: dict[int, Watch] = {}
        """Watches with events that wait for a tick."""
        self.blocking_watches: dict[int, Watch] = {}
        """Watches with on_full: block whose buffer is full."""
        self.room_available = Condition(database.lock)
        self.commit_hooks: list[Callable[[Commit], None]] = []
        """Called with every commit, with the engine lock held.

        A hook must only record that something may have changed.
        """
        self.recent_events = RecentEvents(RETAINED_EVENTS)
        """Recently delivered events of all watches, shown as `_WatchEvent` together with buffered ones."""

    def intern_options(self, options: WatchOptions) -> WatchOptions:
        """Return one shared object for equal options: a million watches have few different options."""
        if len(self._known_options) >= _KNOWN_OPTIONS:
            self._known_options.clear()
        return self._known_options.setdefault(options, options)

    def forget_unused_shapes(self) -> None:
        """Remove compiled shapes without watches, so that ever new statements do not fill the memory."""
        if len(self.compiled_watches) <= self._cleanup_above:
            return
        used = {
            id(w.shape)
            for w in self.committed_index.watches.values()
            if w.status is not WatchStatus.CANCELLED
        }
        latest = next(reversed(self.compiled_watches))  # used by the watch that is being created
        self.compiled_watches = {
            k: c for k, c in self.compiled_watches.items() if id(c.shape) in used or k == latest
        }
        self._cleanup_above = 2 * len(self.compiled_watches) + _MIN_UNUSED_SHAPES

    def id_of(self, watch: Watch) -> str:
        return self.durable_watches.id_of(watch) or f"w{self.database.boot:x}_{watch.number:x}"

    def index_of(self, watch: Watch) -> ShapeIndex:
        if watch.options.mode == "consume":
            return self.consuming.shape_index
        return self.uncommitted_index if watch.options.visibility == "immediate" else self.committed_index

    # --- views ------------------------------------------------------------------------------------------------

    def watch_context(self, watch: Watch, view: View, now: NowFunction | None = None) -> ExecutionContext:
        """The execution context of the watch. `now` replaces the clock in a replay."""
        state = self.database.state
        immediate = watch.options.visibility == "immediate" and watch.options.mode == "watch"
        if view is state.graph and immediate:
            view = self.uncommitted_view.view
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
        """Restrict the context's view to what the watch's actor may see under the current policies."""
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

    # --- schema changes and reloads ---------------------------------------------------------------------------

    def before_define(self) -> dict[int, dict[Any, Any]]:
        """Retract open transactions and return the current rows of actors' watches, because policies may change."""
        for transaction in self.uncommitted_view.open_transactions():
            self.retract_uncommitted(transaction)
        graph = self.database.state.graph
        live = [
            w
            for w in self.committed_index.watches.values()
            if w.actor is not None and w.status is not WatchStatus.CANCELLED and w.options.mode == "watch"
        ]
        return {watch.number: comparable_rows(watch, self.watch_context(watch, graph)) for watch in live}

    def after_define(self, seen: dict[int, dict[Any, Any]], commit: Commit) -> None:
        """Recompile every shape for the new schema, move its watches over, and publish what changed for actors."""
        unindexed = [
            w for w in self.committed_index.watches.values() if w.has_details and w.details.is_unindexed
        ]
        for key, compiled in list(self.compiled_watches.items()):
            away = [watch for watch in unindexed if watch.shape is compiled.shape]
            indexed = compiled.shape.key_index.all_watches()
            actors = any(watch.actor is not None for watch in (*indexed, *away))
            guarded = compiled.shape.checks_policies or (actors and bool(self.database.schema.policies))
            fresh = compile_watch(compiled.request, compiled.options, guarded=guarded)
            self.compiled_watches[key] = fresh
            for watch in indexed:
                self.index_of(watch).remove(watch)
            for watch in (*indexed, *away):
                watch.shape = fresh.shape
                fresh.attach_actions(watch)
            for watch in indexed:
                self.index_of(watch).add(watch)
        effects = CommitEffects(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        graph = self.database.state.graph
        defined = (
            self._before(graph, commit.changes) if commit.changes else graph
        )  # values set by the definition are evaluated like a commit
        for number, rows in seen.items():
            watch = self.committed_index.watches[number]
            if watch.details.followed_sequence is not None:
                continue
            watch.details.last_result = rows
            reevaluate(watch, self.watch_context(watch, defined), effects)
            self.rebuild_counts(watch, defined)
        self.apply_effects(effects, 0)
        self.consuming.refresh_all()
        self.layer0_changes.ontology_changed()

    def rebuild(self) -> None:
        """After the store failed and the state was reloaded: discard everything beyond the last durable commit."""
        state = self.database.state
        self.consuming.rebuild(self.database.stored_notes)
        for watch in self.committed_index.watches.values():
            if watch.status is WatchStatus.CANCELLED or watch.options.mode == "consume":
                continue
            if watch.options.visibility == "immediate":  # its reader may have seen writes that were lost
                self.catch_up.restart_from_snapshot(watch)
                continue
            if watch.buffer is not None:
                watch.position -= watch.buffer.discard_after(state.sequence)
            self.rebuild_counts(watch, state.graph)

    def rebuild_counts(self, watch: Watch, view: View) -> None:
        """Rebuild the counts of a counting watch from the view, without events."""
        if watch.shape.strategy != "rows":
            self.creation.rebuild_counts(watch, self.watch_context(watch, view))
        elif watch.has_details:
            watch.details.last_result = None

    # --- commits ----------------------------------------------------------------------------------------------

    def follow(self, commit: Commit, depth: int) -> None:
        """Evaluate a commit. Readers are woken when it is durable."""
        self.database.history.add(commit)
        changes = commit.changes
        shapes = self.committed_index.affected_shapes(changes)
        if shapes:
            effects = CommitEffects(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
            now = (
                self._evaluation_time(effects)
                if self.committed_index.has_time_dependent_shapes or self.windows.windowed_watches
                else None
            )
            views = self.commit_views(self.database.state.graph, changes, commit.tick, now)
            checked = self.self_check.pick_watch(shapes)
            if checked is not None:
                effects.sample = checked.number
            self.committed_index.evaluate_commit(shapes, changes, views, effects)
            if checked is not None:
                self.self_check.check(checked, views, effects)
            self.apply_effects(effects, depth)
        if self.consuming.is_active:
            self.consuming.committed(commit)
        if self.uncommitted_index.shapes:
            self._publish_changes(self.uncommitted_view.visible_changes(changes))
        if self.committed_index.layer0_shapes:
            self.layer0_changes.committed()
        if self.watching_actors:
            self._end_for_deleted_actors(commit.changes)
        if commit.next_tick > commit.tick and self.tick_held_watches:
            self._release_at_tick()
        if self.commit_hooks:
            for hook in self.commit_hooks:
                hook(commit)

    def _end_for_deleted_actors(self, changes: Sequence[ElementChange]) -> None:
        """End the watches of deleted actors."""
        gone = {before.id for before, after in changes if after is None and before is not None}
        gone.intersection_update(self.watching_actors)
        if gone:
            self.watching_actors -= gone
            for watch in [w for w in self.committed_index.watches.values() if w.actor in gone]:
                self.fail(watch, actor_deleted_error())

    def _evaluation_time(self, effects: CommitEffects) -> NowFunction:
        """Fix `now()` for the whole commit, for time-dependent conditions and windows."""
        moment = self.database.clock.now()
        effects.evaluated_at_ms = timestamp_to_ms(moment)
        return lambda: moment

    def ticked(self, commit: Commit) -> None:
        """Evaluate a tick: time-dependent watches, and events held for the tick."""
        self.follow(commit, 0)

    def _before(self, after: View, changes: Sequence[ElementChange]) -> Overlay:
        """The view before the changes."""
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
        """The views before and after a commit. The view before is built on first use."""
        return CommitViews(
            lambda: self._before(after, changes),
            after,
            now or self.database.clock.now,
            tick,
            self.apply_policy_view,
        )

    def apply_effects(self, effects: CommitEffects, depth: int) -> None:
        """Apply effects: end overflowed and failed watches, queue triggers, wake readers when the commit is
        durable.
        """
        if effects.overflowed:
            for watch, events in Counter(effects.overflowed).items():
                self.overflow(watch, events)
        for watch, error in effects.failures.values():
            self.fail(watch, error)
        if effects.triggers:
            self.triggers.add(effects, depth)
        waking = []
        for watch in effects.notified.values():
            options = watch.options
            if options.deliver_on == "tick" and watch.buffer is not None:
                self._hold_until_tick(watch, watch.buffer, effects.tick)
            if (
                options.on_full == "block"
                and watch.buffered_count >= options.buffer
                and watch.session_id is not None
            ):
                self.blocking_watches[watch.number] = watch
            if options.delivery == "reliable" and watch.buffered_count >= options.buffer:
                self._mark_lagging(watch, effects.sequence)
            details = watch.known_details
            if details is not None and details.wakeup is not None:
                waking.append(details.wakeup)
        if waking:
            self.database.log_writer.call_when_durable(
                effects.sequence, lambda _: [wake() for wake in waking], flush_now=False
            )

    def _hold_until_tick(self, watch: Watch, buffer: EventBuffer, tick: int) -> None:
        """Hold events of the current tick until it ends.

        Late events, and all if every commit is a tick, are not held.
        """
        state = self.database.state
        if state.tick_per_commit or tick < state.tick:
            buffer.held_for_tick = 0
        else:
            self.tick_held_watches[watch.number] = watch

    def _mark_lagging(self, watch: Watch, sequence: int) -> None:
        """Stop evaluating a reliable watch whose buffer is full.

        It continues from the log when its reader has caught up.
        """
        details = watch.details
        if details.followed_sequence is None and watch.number in self.committed_index.watches:
            details.followed_sequence, details.is_unindexed = (
                sequence,
                details.actions is None,
            )  # triggers do not wait for the reader
            if details.is_unindexed:
                self.index_of(watch).remove(watch)

    def _release_at_tick(self) -> None:
        """After a tick: release the events that were held for it."""
        for watch in self.tick_held_watches.values():
            if watch.buffer is not None:
                watch.buffer.held_for_tick = 0
            if watch.details.wakeup is not None:
                watch.details.wakeup()
        self.tick_held_watches.clear()

    def fail(self, watch: Watch, error: VedetteError) -> None:
        """Cancel a watch that raised an error, such as a division by zero. The commit is not affected."""
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
        """Cancel a watch whose missed commits are no longer in the log, rather than skip events silently."""
        self._end_with_overflow(
            watch,
            "The log was trimmed beyond the watch's position; watch cancelled",
            watch.buffered_count,
        )

    def _end_with_overflow(self, watch: Watch, text: str, dropped: int) -> None:
        fields = {"handle": self.id_of(watch), "buffer_size": watch.options.buffer, "dropped": dropped}
        watch.details.add_error(WatchError("E8005", text, fields=fields))
        self.management.end(watch, StatusEvent.OVERFLOW)

    # --- uncommitted writes -----------------------------------------------------------------------------------

    def load_open_transactions(self) -> None:
        """Before the first immediate watch: load what open transactions have written so far."""
        if not self.uncommitted_index.shapes:
            for session in self.database.sessions.values():
                if session.transaction is not None and session.transaction.abort_reason is None:
                    self.uncommitted_view.apply_writes(session.transaction.transaction)

    def publish_uncommitted(self, transaction: Transaction) -> None:
        """After a statement: publish its writes to immediate watches."""
        if self.uncommitted_index.shapes:
            self._publish_changes(self.uncommitted_view.apply_writes(transaction))

    def retract_uncommitted(self, transaction: Transaction) -> None:
        """After a transaction ended: publish the way back after a rollback."""
        if transaction.published:
            self._publish_changes(self.uncommitted_view.remove_writes(transaction))

    def _publish_changes(self, changes: list[ElementChange]) -> None:
        shapes = self.uncommitted_index.affected_shapes(changes) if changes else []
        if not shapes:
            return
        state, after = self.database.state, self.uncommitted_view.view
        effects = CommitEffects(
            state.tick, self.database.log_writer.durable_sequence, timestamp_to_ms(self.database.clock.now())
        )
        views = self.commit_views(after, changes, state.tick)
        self.uncommitted_index.evaluate_commit(shapes, changes, views, effects)
        self.apply_effects(effects, 0)

    # --- reading ----------------------------------------------------------------------------------------------

    def take(self, session: Session, watch: Watch, limit: int | None) -> list[BufferedEvent]:
        """Return ready events in order. For a reliable watch, this confirms the events taken before."""
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
                self.durable_watches.confirm(watch, watch.details.unconfirmed[-1].position)
            ready = watch.take_events(self.database.log_writer.durable_sequence, limit)
            self.recent_events.add(watch, ready)
            if reliable:
                watch.details.unconfirmed.extend(ready)
                if (
                    watch.details.followed_sequence is not None
                    and watch.buffered_count * 2 < watch.options.buffer
                ):
                    self.catch_up.catch_up(watch, watch.details.followed_sequence)
            if ready:
                self.unblock_writers(watch)
            return ready

    def _check_owner(self, session: Session, watch: Watch) -> None:
        """Raise E8010 if another session has attached the watch: it has one reader."""
        if watch.status is not WatchStatus.CANCELLED and not session.closed:
            text = "Another session has attached this watch; attach it again to continue"
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
        """Confirm the events of a reliable watch up to this position."""
        with session.lock_scope:
            if watch.session_id == session.id:
                self.durable_watches.confirm(watch, position)

    def unblock_writers(self, watch: Watch) -> None:
        """Let writers continue: the watch was read, or it has no reader any more."""
        if self.blocking_watches.pop(watch.number, None) is not None:
            self.room_available.notify_all()

    def wait_for_room(self, session: Session) -> None:
        """Before a commit: wait while a watch with on_full: block is full, up to a timeout, and never for one's own
        watch.
        """
        with session.lock_scope:
            seconds = self.database.settings.block_timeout_seconds
            own = [watch for watch in self.blocking_watches.values() if watch.session_id == session.id]
            if not own and self.room_available.wait_for(lambda: not self.blocking_watches, seconds):
                return
            for other in [
                w for w in self.blocking_watches.values() if w.actor is not None and w.actor != session.actor
            ]:
                self.overflow(other, 0)  # one actor must not block the others for longer
            if not self.blocking_watches:
                return
            watch = own[0] if own else next(iter(self.blocking_watches.values()))
            why = "its reader is this session" if own else f"its reader has taken no event for {seconds} s"
            text = f"A watch with on_full: block has no room, and {why}: nothing was committed"
            fields: dict[str, Any] = {"buffer_size": watch.options.buffer, "dropped": 0}
            if session.actor is None or watch.actor == session.actor:
                fields["handle"] = self.id_of(watch)
            raise WatchError("E8005", text, fields=fields)
