"""A watch as a server reads it: with wake-ups, explicit confirmation, and snapshots for later subscribers.

A user's handle (`watch_handle.py`) confirms delivered events when it takes more. A server cannot, because only its
client knows what has arrived. One watch can serve many subscribers, each of which begins with its own snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vedette.change import Event
from vedette.engine.context.request import StatementRequest
from vedette.engine.session.watch_handle import WatchHandle, to_event
from vedette.engine.watch_service.rights import check_watch_rights
from vedette.watch.evaluation.reevaluation import current_rows
from vedette.watch.options import WatchOptions
from vedette.watch.status import StatusEvent, WatchStatus

if TYPE_CHECKING:
    from vedette.engine.session.session import Session

__all__ = ["WatchFeed"]


class WatchFeed:
    """One watch of a server's session. Use it from one thread."""

    __slots__ = ("_handle", "_session", "_watch")

    def __init__(self, session: Session, handle: WatchHandle) -> None:
        self._session = session
        self._handle = handle
        self._watch = handle.watch

    @classmethod
    def create(cls, session: Session, text: str, params: Mapping[str, Any]) -> WatchFeed:
        """Create a watch. Returns when its initial state is durable."""
        return cls(session, session.watch(text, params))

    @classmethod
    def attach(cls, session: Session, handle_or_name: str) -> WatchFeed:
        """Attach a durable watch."""
        return cls(session, session.attach(handle_or_name))

    @property
    def session(self) -> Session:
        return self._session

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def name(self) -> str | None:
        return self._handle.name

    @property
    def options(self) -> WatchOptions:
        return self._watch.options

    @property
    def has_columns(self) -> bool:
        """False for a trigger without RETURN, which publishes no events."""
        return bool(self._watch.shape.columns)

    @property
    def ended(self) -> bool:
        return self._watch.status is WatchStatus.CANCELLED

    @property
    def lasts(self) -> bool:
        """True if the watch outlives its session."""
        return self._watch.is_durable

    def detach(self) -> None:
        """Detach the watch from its session, to be attached again later."""
        watching, watch = self._session.database.watching, self._watch
        with self._session.lock_scope:
            numbers = watching.by_session.get(self._session.id, {})
            if watch.number in numbers and watch.status is not WatchStatus.CANCELLED:
                del numbers[watch.number]
                with watching.layer0_changes.track(watch):
                    watch.session_id = None
                watch.details.wakeup = None
                watching.unblock_writers(watch)
                watching.consuming.update_consumer(watch)
                watching.management.schedule_expiry(watch)

    def listen(self, wakeup: Callable[[], None]) -> None:
        """Call `wakeup` when there may be events: from any thread and with locks held, so it must only record the
        fact.
        """
        self._watch.details.wakeup = wakeup
        log_writer = self._session.database.log_writer
        log_writer.call_when_durable(log_writer.submitted_sequence, lambda _: wakeup())

    def take(self, limit: int | None = None) -> list[Event]:
        """Return ready events. A reliable watch confirms nothing by this; a consume watch claims deliveries."""
        if self._watch.options.mode == "consume" or self._watch.options.delivery != "reliable":
            return self._handle.poll(limit)
        watching, watch = self._session.database.watching, self._watch
        with self._session.lock_scope:
            if watch.session_id != self._session.id:  # another session has attached it
                return []
            ready = watch.take_events(self._session.database.log_writer.durable_sequence, limit)
            watching.recent_events.add(watch, ready)
            watch.details.unconfirmed.extend(ready)
            if ready:
                watching.unblock_writers(watch)
            if (
                watch.details.followed_sequence is not None
                and watch.buffered_count * 2 < watch.options.buffer
            ):
                watching.catch_up.catch_up(watch, watch.details.followed_sequence)
            return [to_event(entry) for entry in ready]

    @property
    def unacknowledged_count(self) -> int:
        """Consume mode: the number of open deliveries."""
        with self._session.lock_scope:
            return self._session.database.watching.consuming.unacknowledged_count(self._watch)

    def confirm(self, position: int) -> None:
        """Confirm the event at this position of a reliable watch, and all events delivered before it."""
        self._session.database.watching.confirm(self._session, self._watch, position)

    @property
    def position(self) -> int:
        """The position of its last event."""
        return self._watch.position

    def set_position(self, position: int) -> None:
        """Continue the positions of an equal watch: the next event gets the following position."""
        with self._session.lock_scope:
            self._watch.position = position

    def snapshot(self) -> Event | None:
        """The current matches as an `initial` event; None while buffered events have not been taken.

        The caller must send it only when what the session's lock scope observed is durable.
        """
        watch, database = self._watch, self._session.database
        with self._session.lock_scope:
            if watch.buffered_count:
                return None
            strategy, details = watch.shape.strategy, watch.details
            if details.window is not None and watch.shape.aggregates:
                rows = details.last_window_groups
            elif strategy == "rows":
                rows = current_rows(watch, database.watching.watch_context(watch, database.state.graph))
            elif strategy == "groups":
                rows = details.group_rows
            else:
                rows = details.last_result or {}
            return Event(
                type="initial",
                tick=database.state.tick,
                position=watch.position,
                matches=tuple(dict(row) for row in rows.values()),
            )

    def pause(self) -> None:
        self._handle.pause()

    def resume(self) -> None:
        self._handle.resume()

    def cancel(self) -> None:
        self._handle.cancel()

    def alter(self, options: str) -> None:
        self._handle.alter(options)

    def errors(self) -> list[Any]:
        """Records for the owner, such as why the watch ended."""
        return self._handle.errors()

    def remove(self) -> None:
        """End the watch and remove its record, because a server's sessions live too long to keep them."""
        watching, watch = self._session.database.watching, self._watch
        with self._session.lock_scope:
            numbers = watching.by_session.get(self._session.id, {})
            if watch.number not in numbers:
                return
            del numbers[watch.number]
            if watch.status is not WatchStatus.CANCELLED:
                watching.management.end(watch, StatusEvent.CANCEL)
            watching.management.remove(watch)

    def check_rights(self, session: Session, text: str, params: Mapping[str, Any]) -> None:
        """Raise E8001 unless the session's actor may have this watch now. For subscribers that join later."""
        database = session.database
        if session.actor is None or not database.schema.policies:
            return
        prepared, literals = database.statements.prepare_one(text)
        request = StatementRequest(session, prepared, prepared.constants(literals, params), text)
        with session.lock_scope:
            shape = self._watch.shape
            known = database.watching.creation.find_compiled(request, True)
            compiled = known or next(
                c for c in database.watching.compiled_watches.values() if c.shape is shape
            )
            check_watch_rights(request, compiled)
