"""A clock for tests that moves only when the test advances it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock

__all__ = ["ManualClock", "Timer"]

START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(order=True, slots=True)
class Timer:
    """A scheduled callback. `cancel` removes it."""

    due: float
    """Due time in seconds of the monotonic clock."""
    rank: int
    """Timers with the same due time run in the order they were set."""
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Implements `vedette.Clock`. `advance` runs every due callback at its own time before it returns.

    The usual mistake: a callback that waits for another thread, which waits for this clock. Callbacks run in the thread
    that advances. A timer that a callback sets runs in the same `advance` if it is due within it.
    """

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(
                "a ManualClock needs a start with a time zone, such as datetime(2024, 1, 1, tzinfo=UTC)"
            )
        self._start = start.astimezone(UTC).replace(microsecond=start.microsecond // 1000 * 1000)
        self._elapsed = 0.0
        self._timers: list[Timer] = []
        self._ranks = 0
        self._lock = Lock()

    def now(self) -> datetime:
        """The current time in UTC, in whole milliseconds."""
        return self._start + timedelta(milliseconds=int(round(self._elapsed * 1000, 3)))

    def monotonic(self) -> float:
        """Seconds since the clock was created."""
        return self._elapsed

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        """Schedule a callback for `monotonic() == due`. A time in the past is due at the next `advance`."""
        with self._lock:
            self._ranks += 1
            timer = Timer(due, self._ranks, callback)
            heapq.heappush(self._timers, timer)
            return timer

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self.call_at(self._elapsed + seconds, callback)

    def advance(self, seconds: float) -> None:
        """Advance the clock. Due callbacks run in order; each sees the clock at its due time."""
        if seconds < 0:
            raise ValueError("`seconds` must not be negative")
        goal = self._elapsed + seconds
        while (timer := self._next(goal)) is not None:
            timer.callback()
        with self._lock:
            self._elapsed = max(self._elapsed, goal)

    def _next(self, goal: float) -> Timer | None:
        """Remove the first timer due by then and set the clock to its time."""
        with self._lock:
            while self._timers and self._timers[0].due <= goal:
                timer = heapq.heappop(self._timers)
                if not timer.cancelled:
                    self._elapsed = max(self._elapsed, timer.due)
                    return timer
            return None
