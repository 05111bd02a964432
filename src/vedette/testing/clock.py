"""A clock that stands still until it is told to move."""

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
    """Something that is due at a moment; `cancel` takes it back."""

    due: float
    """On the monotonic scale, in seconds."""
    rank: int
    """Among timers of one moment the one set first runs first."""
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Implements `vedette.Clock`. `advance` runs what is due, each at its own moment, before it returns.

    The usual mistake: a callback that waits for another thread, which waits for this clock. Callbacks run in the thread
    that advances; what they set anew runs in the same `advance` if it falls due within it.
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
        """The present moment in UTC, in whole milliseconds."""
        return self._start + timedelta(milliseconds=int(round(self._elapsed * 1000, 3)))

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        """Call back when `monotonic()` reaches `due`; a moment that has passed is due at the next `advance`."""
        with self._lock:
            self._ranks += 1
            timer = Timer(due, self._ranks, callback)
            heapq.heappush(self._timers, timer)
            return timer

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self.call_at(self._elapsed + seconds, callback)

    def advance(self, seconds: float) -> None:
        """Let time pass. What falls due on the way runs in order, and finds the clock at its own moment."""
        if seconds < 0:
            raise ValueError("time does not go back")
        goal = self._elapsed + seconds
        while (timer := self._next(goal)) is not None:
            timer.callback()
        with self._lock:
            self._elapsed = max(self._elapsed, goal)

    def _next(self, goal: float) -> Timer | None:
        """The first timer due by then, with the clock set to its moment."""
        with self._lock:
            while self._timers and self._timers[0].due <= goal:
                timer = heapq.heappop(self._timers)
                if not timer.cancelled:
                    self._elapsed = max(self._elapsed, timer.due)
                    return timer
            return None
