"""The only source of time and randomness, so that tests can control both."""

from __future__ import annotations

import heapq
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Condition, Thread
from typing import Protocol

__all__ = ["Clock", "SystemClock", "Timer", "system_random"]

log = logging.getLogger(__name__)
_LONGEST_WAIT_SECONDS = 3600.0
"""Locks cannot wait longer than this; timers can."""
_MIN_CANCELLED = 256
"""Cancelled timers up to this number are not removed early."""


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The current time. Use `monotonic` for durations and `now` for timestamps."""

    def now(self) -> datetime:
        """The current time in UTC, in whole milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        """Call back when `monotonic()` reaches `due`, in a thread of the clock's choice."""
        ...


class _Timer:
    __slots__ = ("_clock", "callback", "due", "rank")

    def __init__(self, due: float, rank: int, callback: Callable[[], object], clock: SystemClock) -> None:
        self.due, self.rank, self._clock = due, rank, clock
        self.callback: Callable[[], object] | None = callback
        """None once cancelled, so that the callback is not kept alive."""

    def __lt__(self, other: _Timer) -> bool:
        return (self.due, self.rank) < (other.due, other.rank)

    def cancel(self) -> None:
        self._clock.cancel(self)


class SystemClock:
    """The system clock. One thread runs all timers; it starts with the first and ends with the last."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._appointments: list[_Timer] = []
        self._timer_count = 0
        self._cancelled = 0
        """Upper bound of the number of cancelled timers."""
        self._thread: Thread | None = None
        self._cached_now = (0, datetime.fromtimestamp(0, UTC))
        """The last result of `now` and its milliseconds: many calls fall into one millisecond."""

    def now(self) -> datetime:
        milliseconds = time.time_ns() // 1_000_000
        known, moment = self._cached_now
        if known != milliseconds:
            moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
            self._cached_now = (milliseconds, moment)
        return moment

    def monotonic(self) -> float:
        return time.monotonic()

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        with self._changed:
            self._timer_count += 1
            appointment = _Timer(due, self._timer_count, callback, self)
            heapq.heappush(self._appointments, appointment)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="vedette-clock", daemon=True)
                self._thread.start()
            self._changed.notify()
        return appointment

    def cancel(self, appointment: _Timer) -> None:
        """Cancel a timer. Cancelled timers are removed when there are many of them."""
        with self._changed:
            if appointment.callback is not None:
                appointment.callback = None
                self._cancelled += 1
            if self._cancelled > _MIN_CANCELLED + len(self._appointments) // 2:
                self._appointments = [each for each in self._appointments if each.callback is not None]
                heapq.heapify(self._appointments)
                self._cancelled = 0
            self._changed.notify()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            try:
                callback()
            except Exception:
                log.exception("A timer callback failed", extra={"action": "timer.failed"})
            del callback  # not kept alive while the thread waits

    def _next(self) -> Callable[[], object] | None:
        """Wait for the next timer that is not cancelled; None if there is none left."""
        with self._changed:
            while self._appointments:
                first = self._appointments[0]
                left = first.due - time.monotonic()
                if first.callback is None or left <= 0:
                    heapq.heappop(self._appointments)
                    if first.callback is not None:
                        return first.callback
                else:
                    self._changed.wait(min(left, _LONGEST_WAIT_SECONDS))
            self._thread = None
            return None


def system_random() -> random.Random:
    """A source of randomness seeded by the operating system."""
    return random.Random()  # noqa: S311 - jitter and sampling, never secrets
