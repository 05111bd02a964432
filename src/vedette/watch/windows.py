"""Windows: when they end and what they contain. Time is a parameter.

tumbling(d): consecutive windows from the creation of the watch. sliding(d, i): every i, over the last d. Without
aggregates a window collects events and delivers them as one event, or none if it is empty. With aggregates every
window end publishes every group: tumbling over the matches that exist then, sliding over the matches that were
added or changed within the duration.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Any

from vedette.watch.delta import Delta
from vedette.watch.options import WindowSpec

__all__ = ["WindowState"]

_SET = timedelta(seconds=1)
"""Clock deviations below this are ignored."""


class WindowState:
    """The windows of one watch."""

    __slots__ = ("_collected", "_latest", "_touched", "due", "end", "first", "window")

    def __init__(self, window: WindowSpec, now: datetime) -> None:
        self.window = window
        self.end = now + window.interval
        """When the next window ends."""
        self.due = 0.0
        """The same on the monotonic clock."""
        self.first = True
        """True until the first window has ended. Its aggregates are published as `initial`."""
        self._latest = now
        """Time of the latest event, or of the start. Replayed events are late and count from here."""
        self._collected: deque[tuple[datetime, int, Delta]] = deque()
        self._touched: dict[Any, datetime] = {}

    @property
    def holds(self) -> bool:
        """True if a later window end may publish something."""
        return bool(self._collected or self._touched)

    @property
    def gathers(self) -> bool:
        """True if there are collected events that a later window end publishes."""
        return bool(self._collected)

    @property
    def start(self) -> datetime:
        return self.end - self.window.duration

    def collect(self, delta: Delta, tick: int, now: datetime) -> None:
        """Add an event of a watch without aggregates."""
        self._collected.append((self._in_order(now), tick, delta))

    def touch(self, identity: Any, now: datetime) -> None:
        """Record that a match of an aggregating sliding watch was added or changed."""
        self._touched[identity] = self._in_order(now)

    def _in_order(self, moment: datetime) -> datetime:
        self._latest = max(self._latest, moment)
        return self._latest

    def recent(self) -> set[Any]:
        """Matches that changed within the window that ends now."""
        start = self.start
        self._touched = {identity: at for identity, at in self._touched.items() if at >= start}
        return set(self._touched)

    def close(self) -> tuple[datetime, datetime, list[tuple[int, Delta]]]:
        """Close the window. Return its bounds and the events from its start up to, but not at, its end."""
        start, end = self.start, self.end
        collected = self._collected
        while self.window.kind == "sliding" and collected and collected[0][0] < start:
            collected.popleft()
        held = [(tick, delta) for at, tick, delta in collected if at < end]
        # each event is in one window; events delayed by a restart are in the next
        if self.window.kind == "tumbling":
            self._collected = deque(each for each in collected if each[0] >= end)
        self.end = end + self.window.interval
        self.due += self.window.interval.total_seconds()
        return start, end, held

    def follow(self, now: datetime, monotonic: float) -> None:
        """After the wall clock was set: shift the windows to the new time. Their length does not change."""
        skew = now - self.end - timedelta(seconds=monotonic - self.due)
        if abs(skew) < _SET:
            return
        before_the_end = now - timedelta(milliseconds=1)

        def moved(moment: datetime) -> datetime:
            return min(
                moment + skew, before_the_end
            )  # events after the clock change have the new time already

        self.end += skew
        self._latest = moved(self._latest)
        self._collected = deque((moved(at), tick, delta) for at, tick, delta in self._collected)
        self._touched = {identity: moved(at) for identity, at in self._touched.items()}

    def export_state(self) -> tuple[datetime, bool, datetime, list[Any], list[tuple[Any, datetime]]]:
        """Return what a copy needs besides the window itself: end, first, latest, collected events, touched matches."""
        collected = [
            (at, tick, delta.type, delta.match, delta.prev, delta.identity)
            for at, tick, delta in self._collected
        ]
        return self.end, self.first, self._latest, collected, list(self._touched.items())

    def import_state(
        self, state: tuple[datetime, bool, datetime, list[Any], list[tuple[Any, datetime]]]
    ) -> None:
        """Continue with an exported state."""
        self.end, self.first, self._latest, collected, touched = state
        self._collected = deque(
            (at, tick, Delta(type, match, prev, identity))
            for at, tick, type, match, prev, identity in collected
        )
        self._touched = dict(touched)

    def validate(self) -> None:
        """Raise AssertionError unless collected events are in order. For tests."""
        times = [at for at, _, _ in self._collected]
        assert times == sorted(times)
        assert self.window.interval > timedelta(0)
