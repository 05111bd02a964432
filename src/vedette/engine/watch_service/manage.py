"""Manages watches: handles, PAUSE, RESUME, CANCEL, ALTER, attach, and the end of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedette.engine.context.request import StatementRequest
from vedette.engine.statements import execution
from vedette.engine.watch_service.compile import CompiledWatch
from vedette.engine.watch_service.normalize import is_placeholder
from vedette.engine.watch_service.options import altered_options
from vedette.errors import VedetteError, WatchError
from vedette.language.printer import print_statement
from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import IdReference, Literal
from vedette.language.syntax.visit import transform
from vedette.values import timestamp_to_ms
from vedette.watch.evaluation.effects import CommitEffects
from vedette.watch.evaluation.reevaluation import comparable_rows, current_rows, reevaluate
from vedette.watch.options import WatchOptions
from vedette.watch.shapes.resolver import SessionValue
from vedette.watch.status import StatusEvent, WatchStatus, next_status
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.context.session_context import Viewer
    from vedette.engine.session.session import Session
    from vedette.engine.watch_service.service import WatchService

__all__ = ["WatchManagement"]

MAX_ENDED_WATCHES = 1000
"""Number of ended watches that can still be read as `_Watch`, over all open sessions."""


class WatchManagement:
    """Checks who may manage a watch, and does it."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching

    def name(self, session: Session, id: str, name: str) -> None:
        """Name a durable watch, so that it can be attached by name."""
        with session.lock_scope:
            watch = self.find(session, id)
            with self._watching.layer0_changes.track(watch):
                watch.details.name = name
            if watch.details.request is not None:
                self._watching.durable_watches.store_definition(watch)

    def statement_text(self, watch: Watch) -> str:
        """The watch's statement with its own constants, its name, and the ids of the elements it refers to."""
        resolved = watch.shape.resolved
        given = len(watch.constants) - len(resolved.captures)
        captured = dict(zip(resolved.captures, watch.constants[given:], strict=True))

        def own(node: Any) -> Any:
            if isinstance(node, Literal) and node.literal_index is not None:
                return Literal(watch.constants[node.literal_index])
            if isinstance(node, IdReference) and is_placeholder(node):
                id = captured[SessionValue("reference", str(node.name))]
                return IdReference(id, quoted=not id.isidentifier())
            return None

        statement, name = resolved.statement, watch.details.name if watch.has_details else None
        if watch.has_details and watch.details.has_altered_filter:
            options = [option for option in statement.options if option.name != "filter"]
            statement = replace(
                statement, options=(*options, ast.WatchOption("filter", watch.options.filter))
            )
        shown = name if name is not None and name.isidentifier() else None
        return print_statement(replace(transform(statement, own), name=shown))

    def find(self, session: Session, id: str) -> Watch:
        """Return the watch of a handle. Unknown is E8002, another session's E8010."""
        watch = self.find_by_id(id)
        if watch is None:
            raise watch_not_found(id)
        if not self._may_manage(session, watch):
            raise WatchError("E8010", "This watch belongs to another session", fields={"handle": id})
        return watch

    def find_by_id(self, id: str) -> Watch | None:
        number = self._watching.durable_watches.number_of(id)
        head = f"w{self._watching.database.boot:x}_"
        if number is None and id.startswith(head):
            try:
                number = int(id.removeprefix(head), 16)
            except ValueError:
                return None
        return self._watching.committed_index.watches.get(number) if number is not None else None

    def _may_manage(self, session: Session, watch: Watch) -> bool:
        if watch.session_id == session.id or session.actor is None or watch.actor == session.actor:
            return True
        _, guard = execution.statement_context(session, ())
        return guard is not None and guard.allows_meta("SET", "_Watch")

    def may_see_all_watches(self, session: Viewer) -> bool:
        """True if the session's actor has META MATCH on `_Watch`."""
        _, guard = execution.statement_context(session, ())
        return guard is not None and guard.allows_meta("MATCH", "_Watch")

    def attach(self, session: Session, handle_or_name: str) -> Watch:
        """Attach a durable watch to the session. Only its actor or the system context may; else E8010."""
        with session.lock_scope:
            watch = self.find_by_id(handle_or_name) or self._named(session, handle_or_name)
            if watch is None or watch.status is WatchStatus.CANCELLED:
                raise watch_not_found(handle_or_name)
            fields = {"handle": handle_or_name}
            if session.actor is not None and session.actor != watch.actor:
                raise WatchError("E8010", "This watch belongs to another actor", fields=fields)
            if not watch.is_durable:
                text = (
                    "This watch ends with its session; only a watch with delivery: reliable can be attached"
                )
                raise WatchError("E8010", text, fields=fields)
            if watch.session_id is not None and watch.session_id != session.id:
                self._detach_owner(watch)
            with self._watching.layer0_changes.track(watch):
                watch.session_id = session.id
                self._watching.by_session.setdefault(session.id, {})[watch.number] = None
            if watch.details.expiry_timer is not None:
                watch.details.expiry_timer.cancel()
            if watch.details.unconfirmed:
                watch.prepend_events(watch.details.unconfirmed)
                watch.details.unconfirmed.clear()
            self._watching.consuming.reattach_consumer(watch)
            return watch

    def _detach_owner(self, watch: Watch) -> None:
        """Remove the watch from its session. That session's reader finds out at its next call."""
        self._watching.by_session.get(watch.session_id or "", {}).pop(watch.number, None)
        self._wake_and_unset(watch)

    def _wake_and_unset(self, watch: Watch) -> None:
        """Wake the reader once more, so that it finds that the watch is gone, and unset its wake-up."""
        wake, watch.details.wakeup = watch.details.wakeup, None
        if wake is not None:
            wake()

    def _named(self, session: Session, name: str) -> Watch | None:
        """The latest durable watch of this name: the actor's own; the system context prefers its own.

        Watches of other actors are not found, because a guessed name would reveal their existence.
        """
        found = [
            w
            for w in self._watching.committed_index.watches.values()
            if w.has_details and w.details.name == name and w.status is not WatchStatus.CANCELLED
            if w.is_durable and (session.actor is None or w.actor == session.actor)
        ]
        return max(found, key=lambda w: (w.actor == session.actor, w.number), default=None)

    def manage(self, session: Session, watch: Watch, operation: str) -> None:
        """Execute PAUSE, RESUME or CANCEL. Takes effect immediately, outside of any transaction."""
        with session.lock_scope:
            event = StatusEvent(operation.lower())
            if event is StatusEvent.CANCEL:
                self.end(watch, event)
                return
            status = next_status(watch.status, event)
            if status is None:
                raise watch_not_found(self._watching.id_of(watch))
            with self._watching.layer0_changes.track(watch):
                watch.status = status
            if status is WatchStatus.ACTIVE:
                self._watching.triggers.resume(watch)
            self._watching.consuming.update_consumer(watch)
            if watch.is_durable:
                self._watching.durable_watches.store_definition(watch)
            if watch.details.wakeup is not None:
                watch.details.wakeup()

    def end(self, watch: Watch, event: StatusEvent, *, lost: bool = False) -> None:
        """End the watch. `lost`: its consumer disconnected without a clean end."""
        status = next_status(watch.status, event)
        if status is not None and watch.status is not WatchStatus.CANCELLED:
            with self._watching.layer0_changes.track(watch):
                self._end(watch, status, lost=lost)

    def _end(self, watch: Watch, status: WatchStatus, *, lost: bool) -> None:
        watch.status = status
        self._watching.ended_count += 1
        if watch.options.mode == "consume":
            self._watching.consuming.remove_consumer(watch, lost=lost)
        elif not watch.has_details or not watch.details.is_unindexed:
            self._watching.index_of(watch).remove(watch)
        watch.buffer = None
        self._watching.compiled_watches.pop((watch.number, "altered"), None)
        self._watching.unblock_writers(watch)
        self._watching.tick_held_watches.pop(watch.number, None)
        self._watching.triggers.forget(watch)
        self._watching.windows.stop(watch)
        if watch.has_details:
            self._watching.durable_watches.forget(watch)
            if watch.details.wakeup is not None:
                watch.details.wakeup()
        self._watching.ended_watches.append(watch)
        if len(self._watching.ended_watches) > MAX_ENDED_WATCHES:
            oldest = self._watching.ended_watches.popleft()
            self._watching.by_session.get(oldest.session_id or "", {}).pop(oldest.number, None)
            self.remove(oldest)

    def alter(self, request: StatementRequest, watch: Watch, given: Sequence[ast.WatchOption]) -> None:
        """Execute ALTER WATCH: buffer, on_full, delivery, filter.

        A new filter produces events like a data change.
        """
        with request.session.lock_scope, self._watching.layer0_changes.track(watch):
            if next_status(watch.status, StatusEvent.ALTER) is None:
                raise watch_not_found(self._watching.id_of(watch))
            options = altered_options(request, watch.options, given)
            if options.delivery == "reliable":
                self._watching.database.check_writable()
            refiltered = options.filter is not watch.options.filter
            if refiltered:
                self._refilter(request, watch, options)
            former, lasted = watch.options, watch.is_durable
            watch.options = options
            if watch.details.followed_sequence is not None and options.delivery != "reliable":
                self._watching.catch_up.restart_from_snapshot(watch)
            self._apply_buffer_limit(watch)
            watch.details.has_altered_options = True
            watch.details.has_altered_filter = watch.details.has_altered_filter or refiltered
            self._watching.consuming.update_consumer(watch)
            promised = options.delivery == "reliable" and former.delivery != "reliable"
            self._store_altered(watch, lasted=lasted, promised=promised, refiltered=refiltered)

    def _apply_buffer_limit(self, watch: Watch) -> None:
        """Apply a smaller buffer to the events that are buffered already, as `on_full` says."""
        options = watch.options
        if options.on_full != "block" or watch.buffered_count < options.buffer:
            self._watching.unblock_writers(watch)
        waits = watch.buffered_count if options.delivery == "best_effort" and options.mode == "watch" else 0
        if waits <= options.buffer:
            return
        if options.on_full == "error":
            self._watching.overflow(watch, waits - options.buffer)
        elif options.on_full == "drop" and watch.buffer is not None:
            watch.buffer.shrink_to(options.buffer)
        else:
            self._watching.blocking_watches[watch.number] = watch

    def _store_altered(self, watch: Watch, *, lasted: bool, promised: bool, refiltered: bool) -> None:
        """Store what was altered, so that it survives a restart."""
        durable_watches = self._watching.durable_watches
        if promised:
            if not lasted:
                compiled = next(c for c in self._watching.compiled_watches.values() if c.shape is watch.shape)
                watch.details.request = compiled.request
            durable_watches.make_reliable(watch)
        elif watch.is_durable and refiltered:
            durable_watches.reset_position(watch)
        elif watch.is_durable:
            durable_watches.store_definition(watch)
        elif lasted:
            durable_watches.forget(watch)

    def _refilter(self, request: StatementRequest, watch: Watch, options: WatchOptions) -> None:
        """Recompile with another filter. If it cannot be evaluated, the watch stays unchanged."""
        compiled = next(c for c in self._watching.compiled_watches.values() if c.shape is watch.shape)
        graph, consumes = self._watching.database.state.graph, watch.options.mode == "consume"
        seen = comparable_rows(watch, self._watching.watch_context(watch, graph))
        fresh = compiled.refiltered(options.filter)
        former, constants = (
            (watch.shape, watch.constants),
            self._capture_again(request, watch, compiled, fresh),
        )
        index, indexed = self._watching.index_of(watch), not consumes and not watch.details.is_unindexed
        if indexed:
            index.remove(watch)
        watch.shape, watch.constants = fresh.shape, constants
        try:
            if consumes:
                self._watching.consuming.change_filter(watch)
            else:
                current_rows(watch, self._watching.watch_context(watch, graph))
        except VedetteError:
            watch.shape, watch.constants = former
            if indexed:
                index.add(watch)
            raise
        self._watching.compiled_watches[watch.number, "altered"] = fresh
        fresh.attach_actions(watch)
        if indexed:
            index.add(watch)
        if not consumes:
            self._publish_filter_change(watch, seen)

    def _capture_again(
        self, request: StatementRequest, watch: Watch, compiled: CompiledWatch, fresh: CompiledWatch
    ) -> tuple[Any, ...]:
        """The watch's constants for another shape. Session values it has captured already keep their value."""
        given = len(compiled.request.constants)
        known = dict(zip(compiled.captures, watch.constants[given:], strict=True))
        _, guard = execution.statement_context(request.session, ())
        captured = self._watching.creation.capture(request, fresh, guard, {**_owner_captures(watch), **known})
        return watch.constants[:given] + captured

    def _publish_filter_change(self, watch: Watch, seen: dict[Any, Any]) -> None:
        database = self._watching.database
        context = self._watching.watch_context(watch, database.state.graph)
        if watch.shape.strategy in ("groups", "distinct"):
            self._watching.creation.rebuild_counts(watch, context)
        effects = CommitEffects(
            database.state.tick, database.state.sequence, timestamp_to_ms(database.clock.now())
        )
        kept, watch.details.last_result = watch.details.last_result, seen
        reevaluate(watch, context, effects)
        if watch.shape.strategy != "reevaluated":
            watch.details.last_result = kept
        self._watching.apply_effects(effects, 0)
        # its trigger firings are queued; its reader gets a snapshot
        if watch.details.followed_sequence is not None:
            self._watching.catch_up.restart_from_snapshot(watch)

    def end_session(self, session: Session, *, lost: bool = False) -> None:
        """End a session: best-effort watches end; reliable watches and triggers continue without an owner."""
        for number in self._watching.by_session.pop(session.id, {}):
            watch = self._watching.committed_index.watches.get(number)
            if watch is None or watch.session_id != session.id:
                continue
            if watch.is_durable and watch.status is not WatchStatus.CANCELLED:
                with self._watching.layer0_changes.track(watch):
                    watch.session_id = None
                self._wake_and_unset(watch)
                self._watching.unblock_writers(watch)
                self._watching.consuming.update_consumer(watch)
                self.schedule_expiry(watch)
            else:
                self.end(watch, StatusEvent.CANCEL, lost=lost)
                self.remove(watch)

    def remove(self, watch: Watch) -> None:
        """Remove an ended watch; its handle becomes unknown."""
        if watch.number in self._watching.committed_index.watches:
            with self._watching.layer0_changes.track(watch):
                self._watching.committed_index.discard(watch)
            self._watching.layer0_changes.forget(watch)
            self._watching.ended_count -= 1

    def discard(self, id: str) -> None:
        """Remove a watch whose creation was lost because the store failed."""
        watch = self.find_by_id(id)
        if watch is not None:
            self.end(watch, StatusEvent.CANCEL)
            self.remove(watch)

    def schedule_expiry(self, watch: Watch) -> None:
        """Schedule the end of a reliable watch without a session. Triggers do not expire."""
        if watch.details.actions is not None:
            return
        clock = self._watching.database.clock

        def expire() -> None:
            with self._watching.database.lock:
                if watch.session_id is None:
                    self.end(watch, StatusEvent.CANCEL)

        seconds = self._watching.database.settings.watch_retention_seconds
        watch.details.expiry_timer = clock.call_at(clock.monotonic() + seconds, expire)

    def cancel_timers(self) -> None:
        """Cancel all timers when the database is closed. Durable watches stay in the store."""
        for watch in self._watching.committed_index.watches.values():
            if watch.has_details and watch.details.expiry_timer is not None:
                watch.details.expiry_timer.cancel()


def _owner_captures(watch: Watch) -> dict[SessionValue, Any]:
    """The session values of the watch's own actor, no matter who alters the watch."""
    named: dict[SessionValue, Any] = {SessionValue("current_actor"): watch.actor}
    if watch.actor is not None:
        named[SessionValue("self")] = watch.actor
    return named


def watch_not_found(id: str) -> WatchError:
    text = "Handle references non-existent or cancelled watch"
    return WatchError("E8002", text, fields={"handle": id})
