"""How many tasks a second, judged only over a window in which there was work all the time (ruling 12)."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

__all__ = ["ThroughputMeter"]


class ThroughputMeter:
    """Told of every completion and of every look at the queue; `rate` is None while there is nothing to judge."""

    def __init__(self, window_seconds: float) -> None:
        self._window = timedelta(seconds=window_seconds)
        self._completions: deque[tuple[datetime, int]] = deque()
        self._busy_since: datetime | None = None

    def add_completed(self, count: int, now: datetime) -> None:
        self._completions.append((now, count))
        self._forget(now)

    def observe_backlog(self, waiting_or_under_way: int, now: datetime) -> None:
        """`waiting_or_under_way`: tasks in the queue, claimed or not. None of them ends the busy span."""
        if waiting_or_under_way <= 0:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now

    def rate(self, now: datetime) -> float | None:
        if self._busy_since is None or now - self._busy_since < self._window:
            return None
        self._forget(now)
        return sum(count for _, count in self._completions) / self._window.total_seconds()

    def _forget(self, now: datetime) -> None:
        while self._completions and now - self._completions[0][0] >= self._window:
            self._completions.popleft()
