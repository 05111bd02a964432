"""The buffer of undelivered events of one watch: bounded and ordered; it reports what it dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypeVar

from vedette.values import is_nan
from vedette.watch.delta import Delta

__all__ = ["AppendResult", "BufferedEvent", "EventBuffer", "in_order", "ordered"]

Row = TypeVar("Row")


class BufferedEvent(NamedTuple):
    """One undelivered event."""

    position: int
    sequence: int
    """The commit that caused it. The event is delivered when this commit is durable."""
    tick: int
    delta: Delta
    dropped: int = 0
    """Number of events dropped directly before this one."""
    commit_start_position: int = 0
    """Reliable watches: the position before the first event of the same commit."""
    detected_at_ms: int = 0
    """When it was detected, in milliseconds."""


class AppendResult(StrEnum):
    """The result of appending an event."""

    APPENDED = "kept"
    DROPPED_OLDEST = "dropped"
    """The oldest event was dropped."""
    OVERFLOW = "overflow"
    """The buffer is full and nothing may be dropped."""


_KEPT = AppendResult.APPENDED


class EventBuffer:
    """Bounded event buffer. The initial snapshot is never dropped, because later events depend on it."""

    __slots__ = ("_entries", "_gap", "dropped", "held_for_tick")

    def __init__(self) -> None:
        self._entries: deque[BufferedEvent] = deque()
        self._gap = 0
        """Dropped events that no buffered event reports yet."""
        self.held_for_tick = 0
        """How many of the last events wait for a tick (deliver_on: tick)."""
        self.dropped = 0
        """Total number of dropped events."""

    @property
    def unreported_drops(self) -> int:
        """Dropped events that have not been reported yet."""
        return self._gap

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: BufferedEvent, limit: int, on_full: str) -> AppendResult:
        entries = self._entries
        if len(entries) < limit or on_full == "block":
            entries.append(entry)
            return _KEPT
        if on_full == "error":
            return AppendResult.OVERFLOW
        self._drop_oldest()
        entries.append(entry._replace(dropped=self._gap) if self._gap else entry)
        self._gap = 0
        return AppendResult.DROPPED_OLDEST

    def shrink_to(self, limit: int) -> None:
        """Reduce the limit; the oldest events are dropped."""
        while len(self._entries) > max(limit, 1):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the oldest event. The next event reports how many are missing."""
        entries = self._entries
        initial = entries.popleft() if entries[0].delta.type == "initial" else None
        gap = 0
        if entries:
            victim = entries.popleft()
            gap = victim.dropped + 1
            self.dropped += 1
        if entries:
            entries[0] = entries[0]._replace(dropped=entries[0].dropped + gap)
            gap = 0
        if initial is not None:
            entries.appendleft(initial)
        self._gap += gap
        self.held_for_tick = min(self.held_for_tick, len(entries))

    def ready(self, durable: int) -> bool:
        """True if an event can be delivered now."""
        return len(self._entries) > self.held_for_tick and self._entries[0].sequence <= durable

    def take(self, durable: int, limit: int | None, descending: tuple[bool, ...] = ()) -> list[BufferedEvent]:
        """Remove and return events that are durable and not held for a tick; sorted by attribute if directions are
        given.
        """
        entries = self._entries
        count = 0
        while count < len(entries) - self.held_for_tick and entries[count].sequence <= durable:
            count += 1
        ready = [entries.popleft() for _ in range(count)]
        if descending:
            ready = ordered(ready, descending)
        if (
            limit is not None and len(ready) > limit
        ):  # put the rest back in arrival order: the oldest is dropped first
            entries.extendleft(sorted(ready[limit:], key=_position, reverse=True))
            del ready[limit:]
        return ready

    def prepend(self, entries: list[BufferedEvent]) -> None:
        """Put back delivered but unconfirmed events; they are delivered again, first."""
        self._entries.extendleft(reversed(entries))

    def add_unreported_drops(self, missing: int) -> None:
        """Report `missing` dropped events with the first buffered one."""
        if missing and self._entries:
            self._entries[0] = self._entries[0]._replace(dropped=self._entries[0].dropped + missing)

    def discard_after(self, sequence: int) -> int:
        """Remove events of later commits. Return their number."""
        kept = [entry for entry in self._entries if entry.sequence <= sequence]
        gone = len(self._entries) - len(kept)
        self._entries = deque(kept)
        self.held_for_tick = min(self.held_for_tick, len(kept))
        return gone

    def discard_until(self, position: int) -> None:
        """Remove events up to this position."""
        self._entries = deque(entry for entry in self._entries if entry.position > position)
        self.held_for_tick = min(self.held_for_tick, len(self._entries))

    def peek(self) -> list[BufferedEvent]:
        return list(self._entries)

    def clear(self) -> None:
        self._entries.clear()
        self.held_for_tick = 0

    def validate(self) -> None:
        """Raise AssertionError unless counts agree and every drop is reported once. For tests."""
        entries = list(self._entries)
        assert 0 <= self.held_for_tick <= len(entries)
        assert len({entry.position for entry in entries}) == len(entries)
        assert all(entry.dropped >= 0 for entry in entries)
        assert self._gap + sum(entry.dropped for entry in entries) <= self.dropped


class _Rank:
    """A sort key with directions: nulls last when ascending, first when descending, like ORDER BY."""

    __slots__ = ("descending", "place", "values")

    def __init__(self, values: tuple[Any, ...], descending: tuple[bool, ...], place: int) -> None:
        self.values, self.descending, self.place = values, descending, place

    def __lt__(self, other: _Rank) -> bool:
        # events without order values (published after a filter change) come first
        if not (self.values and other.values):
            return self.place < other.place if self.values == other.values else not self.values
        for mine, theirs, down in zip(self.values, other.values, self.descending, strict=True):
            if mine == theirs or (is_nan(mine) and is_nan(theirs)):
                continue
            if mine is None or theirs is None:
                return (mine is None) == down
            if is_nan(mine) or is_nan(theirs):  # next to the nulls
                return is_nan(mine) == down
            return _precedes(theirs, mine) if down else _precedes(mine, theirs)
        return self.place < other.place


def _precedes(one: Any, other: Any) -> bool:
    """Compare values of a union without a common order by type name."""
    try:
        return bool(one < other)
    except TypeError:
        return type(one).__name__ < type(other).__name__


def in_order(rows: Iterable[tuple[tuple[Any, ...], Row]], descending: tuple[bool, ...]) -> list[Row]:
    """Sort rows by the order values given with them; ties keep their order."""
    ranked = [(_Rank(order, descending, position), row) for position, (order, row) in enumerate(rows)]
    return [row for _, row in sorted(ranked, key=_rank)]


def _position(entry: BufferedEvent) -> int:
    return entry.position


def _rank(ranked: tuple[_Rank, Any]) -> _Rank:
    return ranked[0]


def ordered(entries: list[BufferedEvent], descending: tuple[bool, ...]) -> list[BufferedEvent]:
    """Sort by attribute, ties by arrival. Events of one identity keep their order, and none passes an `initial`."""
    found: list[BufferedEvent] = []
    start = 0
    for position, entry in enumerate(entries):
        if entry.delta.type == "initial":
            found += _by_attribute(entries[start:position], descending)
            found.append(entry)
            start = position + 1
    return found + _by_attribute(entries[start:], descending)


def _by_attribute(entries: list[BufferedEvent], descending: tuple[bool, ...]) -> list[BufferedEvent]:
    found: list[BufferedEvent] = []
    lines: dict[Any, deque[BufferedEvent]] = {}
    for entry in entries:
        lines.setdefault(entry.delta.identity, deque()).append(entry)
    heap = [(_Rank(line[0].delta.order, descending, line[0].position), line) for line in lines.values()]
    heapify(heap)
    while heap:
        _, line = heappop(heap)
        found.append(line.popleft())
        if line:
            heappush(heap, (_Rank(line[0].delta.order, descending, line[0].position), line))
    return found
