"""Time and randomness enter Vedette here and nowhere else, so that tests can hold both in their hands."""

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
"""A lock cannot wait for centuries; an appointment can."""
_MIN_CANCELLED = 256
"""So many appointments that were cancelled are no reason to look for them."""


class Timer(Protocol):
    """Something that is due at a moment."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where the present comes from. `monotonic` measures spans, `now` names moments."""

    def now(self) -> datetime:
        """The present moment in UTC, in whole milliseconds."""
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
        """None when it was cancelled: who is not called any more is not held, either."""

    def __lt__(self, other: _Timer) -> bool:
        return (self.due, self.rank) < (other.due, other.rank)

    def cancel(self) -> None:
        self._clock.cancel(self)


class SystemClock:
    """The machine's own clock. One thread keeps all its appointments; it starts with the first, ends with the last."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._appointments: list[_Timer] = []
        self._timer_count = 0
        self._cancelled = 0
        """How many of the appointments, at most, nobody wants any more."""
        self._thread: Thread | None = None
        self._cached_now = (0, datetime.fromtimestamp(0, UTC))
        """The moment last asked for, in milliseconds and as it was answered: many ask within one."""

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
        """Call nobody then. What was to be in a hundred years is not kept until then."""
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
                log.exception("A timer callback failed", extra={"action": "clock.failed"})
            del callback  # not held while the thread waits for the next

    def _next(self) -> Callable[[], object] | None:
        """Wait for the first appointment that is due and still wanted; None when there is none left."""
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
