"""The user's handle of a watch: poll, wait, acknowledge, manage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, get_ident
from typing import TYPE_CHECKING, Any

from vedette.change import Event
from vedette.clock import SystemClock
from vedette.errors import WatchError
from vedette.language.parser import parse_watch_options
from vedette.language.printer import print_watch_options
from vedette.watch.buffer import BufferedEvent
from vedette.watch.options import invalid_option
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.session.session import Session
    from vedette.engine.watch_service.service import WatchService

__all__ = ["WatchHandle", "to_event"]

_real_time = SystemClock()
_NOTHING: Mapping[str, Any] = {}


def to_event(entry: BufferedEvent) -> Event:
    """The public event of a buffered one."""
    delta = entry.delta
    inner = tuple(to_event(each) for each in delta.events) if delta.events is not None else None
    return Event(
        type=delta.type,
        tick=entry.tick,
        position=entry.position,
        match=delta.match,
        prev=delta.prev,
        matches=tuple(delta.matches) if delta.matches is not None else None,
        dropped=entry.dropped,
        window_start=delta.window[0] if delta.window is not None else None,
        window_end=delta.window[1] if delta.window is not None else None,
        events=inner,
        delivery_id=delta.delivery[0] if delta.delivery is not None else None,
        attributes={"attempt": delta.delivery[1]} if delta.delivery is not None else _NOTHING,
    )


class WatchHandle:
    """A watch as its owner uses it. May be used from any thread."""

    __slots__ = ("_has_wakeup", "_readers", "_session", "_wakeup_tokens", "_watch")

    def __init__(self, session: Session, watch: Watch) -> None:
        self._session = session
        self._watch = watch
        self._wakeup_tokens: SimpleQueue[None] = SimpleQueue()
        """Holds a token while there may be events. It wakes one reader, which leaves one for the others."""
        self._readers: set[int] = set()
        """Threads in `next`."""
        self._has_wakeup = False
        """True once the wake-up is set: most handles are only polled."""

    @property
    def _watching(self) -> WatchService:
        return self._session.database.watching

    @property
    def session(self) -> Session:
        return self._session

    @property
    def watch(self) -> Watch:
        """The engine's record, for `watch_feed.py`."""
        return self._watch

    @property
    def id(self) -> str:
        """The handle: the id of the `_Watch` node."""
        return self._watching.id_of(self._watch)

    @property
    def name(self) -> str | None:
        return self._watch.details.name if self._watch.has_details else None

    @property
    def status(self) -> str:
        return str(self._watch.status)

    @property
    def lasts(self) -> bool:
        """True if the watch outlives its session: a reliable watch or a trigger."""
        return self._watch.is_durable

    @property
    def ended(self) -> bool:
        """True if no more events can arrive: the watch is cancelled or its session closed."""
        return self._watch.status is WatchStatus.CANCELLED or self._session.closed

    # --- events -----------------------------------------------------------------------------------------------

    def poll(self, limit: int | None = None) -> list[Event]:
        """All events that are ready now; never waits. The first call includes `initial`."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise invalid_option("limit", f"allowed is an integer from 0, got {limit!r}")
        self._session.check_not_forked()
        return [to_event(entry) for entry in self._watching.take(self._session, self._watch, limit)]

    def next(self, timeout: float | None = None) -> Event | None:
        """Wait, in real time, for one event; None on timeout or if the watch has ended."""
        entry = self.next_entry(timeout)
        return to_event(entry) if entry is not None else None

    def next_entry(self, timeout: float | None = None) -> BufferedEvent | None:
        """Like `next`, but returns the buffered event."""
        end = _deadline(timeout)
        self._session.check_not_forked()
        reader = get_ident()
        self._readers.add(reader)
        if not self._has_wakeup:
            self.set_wakeup(self._wake)
            self._has_wakeup = True
        try:
            while True:
                ready = self._watching.take(self._session, self._watch, 1)
                if ready:
                    return ready[0]
                if self.ended:
                    return None
                left = None if end is None else end - _real_time.monotonic()
                if left is not None and left <= 0:
                    return None
                with suppress(Empty):
                    self._wakeup_tokens.get(timeout=left)
        finally:
            self._readers.discard(reader)
            if self._readers:
                self._wake()

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def set_wakeup(self, wakeup: Callable[[], None]) -> None:
        """Call `wakeup`, in any thread, when there may be events."""
        self._watch.details.wakeup = wakeup
        log_writer = self._session.database.log_writer  # events computed earlier may still wait for the disk
        log_writer.call_when_durable(log_writer.submitted_sequence, lambda _: wakeup())

    def _wake(self) -> None:
        if self._wakeup_tokens.empty():
            self._wakeup_tokens.put(None)

    @property
    def idle(self) -> bool:
        """True if no event is buffered and, for a reliable watch, all delivered events are confirmed."""
        return self._watching.is_idle(self._session, self._watch)

    def errors(self) -> list[Any]:
        """Records for the owner since the last call: overflows, timeouts, withdrawals."""
        return self._watching.take_errors(self._session, self._watch)

    def ack(self, *events: Event) -> None:
        """Consume: delete the delivered elements, each in its own transaction. Returns when all are durable.

        Reliable watches: confirm the events and all before them.
        """
        if self._watch.options.mode == "consume":
            self._session.ack([_delivery_id(event) for event in events if event.type != "initial"])
            return
        for event in events:
            self._watching.confirm(self._session, self._watch, event.position)

    def nack(
        self,
        event: Event,
        retry: bool = True,
        delay: timedelta | float | None = None,
        cause: str | None = None,
    ) -> None:
        """Return a delivery for another attempt, now or after `delay` (a timedelta, or seconds), or dead-letter it."""
        self._session.nack(_delivery_id(event), retry=retry, delay=_to_timedelta(delay), cause=cause)

    def extend(self, event: Event, by: timedelta | float | None = None) -> None:
        """Extend the lease of a delivery: `by` from now, or another ack_timeout."""
        self._session.extend(_delivery_id(event), _to_timedelta(by))

    def release(self, event: Event) -> None:
        """Return a delivery to its queue without counting an attempt."""
        self._session.release(_delivery_id(event))

    def renew(self, events: Sequence[Event]) -> list[Event]:
        """Renew leases. Return the events that are still held and still match."""
        kept = set(self._session.renew([_delivery_id(event) for event in events]))
        return [event for event in events if event.delivery_id in kept]

    @property
    def lease_seconds(self) -> float:
        """How long a delivery may take before it counts as failed (`ack_timeout`)."""
        return self._watch.options.ack_timeout.total_seconds()

    # --- management -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        self._watching.management.manage(self._session, self._watch, "PAUSE")

    def resume(self) -> None:
        self._watching.management.manage(self._session, self._watch, "RESUME")
        self._watching.triggers.run_pending(self._session.lock_scope)

    def cancel(self) -> None:
        self._watching.management.manage(self._session, self._watch, "CANCEL")

    def alter(self, options: str) -> None:
        """`w.alter("[buffer: 10]")`: buffer, on_full, delivery and filter may change."""
        self._session.execute(
            f"ALTER WATCH #$watch SET {print_watch_options(parse_watch_options(options))}", watch=self.id
        )

    def __repr__(self) -> str:
        return f"<watch {self.id} {self.status}, {self._watch.buffered_count} waiting>"


def _delivery_id(event: Event) -> str:
    if event.delivery_id is None:
        text = f"Invalid delivery ID: '{None}' not found or already processed"
        raise WatchError("E8004", f"{text} (an event of type '{event.type}' is not a delivery)")
    return event.delivery_id


def _to_timedelta(span: timedelta | float | None) -> Any:
    """Seconds as a timedelta. Other values are returned unchanged and rejected by the caller."""
    if isinstance(span, (int, float)) and not isinstance(span, bool):
        with suppress(OverflowError, ValueError):  # out of range, or NaN
            return timedelta(seconds=span)
    return span


def _deadline(timeout: Any) -> float | None:
    """The deadline on the monotonic clock; None: never."""
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)) or math.isnan(timeout):
        raise invalid_option("timeout", f"allowed are seconds, or None to wait for ever, got {timeout!r}")
    return _real_time.monotonic() + timeout if timeout < TIMEOUT_MAX else None
