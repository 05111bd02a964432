"""Windows: when they end, and what they hold (surface.md, Windows). Time is a parameter.

tumbling(d): windows follow each other, from the creation of the watch. sliding(d, i): every i, over the last d.
Without aggregates a window collects events and delivers them as one, nothing when there are none. With aggregates every
window end tells every group: tumbling over the matches that exist then, sliding over those that were added or changed
within the duration.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Any

from vedette.watch.delta import Delta
from vedette.watch.options import WindowSpec

__all__ = ["WindowState"]

_SET = timedelta(seconds=1)
"""A clock that is wrong by less is right."""


class WindowState:
    """The windows of one watch."""

    __slots__ = ("_collected", "_latest", "_touched", "due", "end", "first", "window")

    def __init__(self, window: WindowSpec, now: datetime) -> None:
        self.window = window
        self.end = now + window.interval
        """When the next window ends."""
        self.due = 0.0
        """The same on the scale that nobody sets: `Clock.monotonic`."""
        self.first = True
        """Whether no window has ended yet: the first aggregate is told as `initial`."""
        self._latest = now
        """When something was last told, or the windows began: what comes from the log is late and counts from there."""
        self._collected: deque[tuple[datetime, int, Delta]] = deque()
        self._touched: dict[Any, datetime] = {}

    @property
    def holds(self) -> bool:
        """Whether anything was collected that a window end may yet tell."""
        return bool(self._collected or self._touched)

    @property
    def gathers(self) -> bool:
        """Whether there are events that no window end has told yet, or not for the last time."""
        return bool(self._collected)

    @property
    def start(self) -> datetime:
        return self.end - self.window.duration

    def collect(self, delta: Delta, tick: int, now: datetime) -> None:
        """An event of a watch without aggregates."""
        self._collected.append((self._in_order(now), tick, delta))

    def touch(self, identity: Any, now: datetime) -> None:
        """A match of an aggregating sliding watch was added or changed."""
        self._touched[identity] = self._in_order(now)

    def _in_order(self, moment: datetime) -> datetime:
        self._latest = max(self._latest, moment)
        return self._latest

    def recent(self) -> set[Any]:
        """Matches that were touched within the window that ends now."""
        start = self.start
        self._touched = {identity: at for identity, at in self._touched.items() if at >= start}
        return set(self._touched)

    def close(self) -> tuple[datetime, datetime, list[tuple[int, Delta]]]:
        """End the window: its bounds, and the events from its start up to, not at, its end."""
        start, end = self.start, self.end
        collected = self._collected
        while self.window.kind == "sliding" and collected and collected[0][0] < start:
            collected.popleft()
        held = [(tick, delta) for at, tick, delta in collected if at < end]
        if self.window.kind == "tumbling":  # each event is in one window; what a restart cut off, in the next
            self._collected = deque(each for each in collected if each[0] >= end)
        self.end = end + self.window.interval
        self.due += self.window.interval.total_seconds()
        return start, end, held

    def follow(self, now: datetime, monotonic: float) -> None:
        """When the time of day was set meanwhile, windows go on from the new one; they are as long as before."""
        skew = now - self.end - timedelta(seconds=monotonic - self.due)
        if abs(skew) < _SET:
            return
        before_the_end = now - timedelta(milliseconds=1)

        def moved(moment: datetime) -> datetime:
            return min(moment + skew, before_the_end)  # what came after the leap has the new time already

        self.end += skew
        self._latest = moved(self._latest)
        self._collected = deque((moved(at), tick, delta) for at, tick, delta in self._collected)
        self._touched = {identity: moved(at) for identity, at in self._touched.items()}

    def validate(self) -> None:
        """Raise AssertionError unless what is collected is in order; for tests."""
        times = [at for at, _, _ in self._collected]
        assert times == sorted(times)
        assert self.window.interval > timedelta(0)
