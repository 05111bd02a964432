"""Events of one watch that wait to be handed out: bounded, in order, honest about what was dropped."""

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
    """One event in waiting."""

    position: int
    sequence: int
    """The commit that caused it: handed out only when that is durable."""
    tick: int
    delta: Delta
    dropped: int = 0
    """How many events were dropped right before this one."""
    commit_start_position: int = 0
    """Reliable watches: the position before the first event of the same commit."""
    detected_at_ms: int = 0
    """When it was detected."""


class AppendResult(StrEnum):
    """What became of an event that was offered to the buffer."""

    APPENDED = "kept"
    DROPPED_OLDEST = "dropped"
    """The oldest one went instead."""
    OVERFLOW = "overflow"
    """There was no room and nothing may be dropped."""


_KEPT = AppendResult.APPENDED


class EventBuffer:
    """The initial snapshot is never dropped: without it nothing that follows makes sense."""

    __slots__ = ("_entries", "_gap", "dropped", "held_for_tick")

    def __init__(self) -> None:
        self._entries: deque[BufferedEvent] = deque()
        self._gap = 0
        """Dropped events that no entry tells of yet."""
        self.held_for_tick = 0
        """How many of the last entries wait for a tick (deliver_on: tick)."""
        self.dropped = 0
        """How many events were dropped in all."""

    @property
    def unreported_drops(self) -> int:
        """Dropped events that nobody was told of yet."""
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
        """There is less room from now on: the oldest go."""
        while len(self._entries) > max(limit, 1):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Make room; the event after the gap says how many are missing."""
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
        """Whether anything may be handed out now."""
        return len(self._entries) > self.held_for_tick and self._entries[0].sequence <= durable

    def take(self, durable: int, limit: int | None, descending: tuple[bool, ...] = ()) -> list[BufferedEvent]:
        """Remove and return what is durable and not held for a tick; ordered by attribute when directions are given."""
        entries = self._entries
        count = 0
        while count < len(entries) - self.held_for_tick and entries[count].sequence <= durable:
            count += 1
        ready = [entries.popleft() for _ in range(count)]
        if descending:
            ready = ordered(ready, descending)
        if (
            limit is not None and len(ready) > limit
        ):  # the rest as it came: the oldest is the first to be dropped
            entries.extendleft(sorted(ready[limit:], key=_position, reverse=True))
            del ready[limit:]
        return ready

    def prepend(self, entries: list[BufferedEvent]) -> None:
        """Entries that were handed out and not confirmed: they are handed out again, first."""
        self._entries.extendleft(reversed(entries))

    def add_unreported_drops(self, missing: int) -> None:
        """So many events are missing before the first one that waits."""
        if missing and self._entries:
            self._entries[0] = self._entries[0]._replace(dropped=self._entries[0].dropped + missing)

    def discard_after(self, sequence: int) -> int:
        """Take out what later commits caused; returns how many entries went."""
        kept = [entry for entry in self._entries if entry.sequence <= sequence]
        gone = len(self._entries) - len(kept)
        self._entries = deque(kept)
        self.held_for_tick = min(self.held_for_tick, len(kept))
        return gone

    def discard_until(self, position: int) -> None:
        """Take out what its owner has already."""
        self._entries = deque(entry for entry in self._entries if entry.position > position)
        self.held_for_tick = min(self.held_for_tick, len(self._entries))

    def peek(self) -> list[BufferedEvent]:
        return list(self._entries)

    def clear(self) -> None:
        self._entries.clear()
        self.held_for_tick = 0

    def validate(self) -> None:
        """Raise AssertionError unless what is held is there and every drop is told once; for tests."""
        entries = list(self._entries)
        assert 0 <= self.held_for_tick <= len(entries)
        assert len({entry.position for entry in entries}) == len(entries)
        assert all(entry.dropped >= 0 for entry in entries)
        assert self._gap + sum(entry.dropped for entry in entries) <= self.dropped


class _Rank:
    """An order key with directions: nulls last when ascending, first when descending, as ORDER BY has it."""

    __slots__ = ("descending", "place", "values")

    def __init__(self, values: tuple[Any, ...], descending: tuple[bool, ...], place: int) -> None:
        self.values, self.descending, self.place = values, descending, place

    def __lt__(self, other: _Rank) -> bool:
        if not (self.values and other.values):  # told anew, by another filter say: before what has an order
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
    """Values of a union may have no common order: then their types have one."""
    try:
        return bool(one < other)
    except TypeError:
        return type(one).__name__ < type(other).__name__


def in_order(rows: Iterable[tuple[tuple[Any, ...], Row]], descending: tuple[bool, ...]) -> list[Row]:
    """Rows by the values of the ordering terms that come with them; ties as they are given."""
    ranked = [(_Rank(order, descending, place), row) for place, (order, row) in enumerate(rows)]
    return [row for _, row in sorted(ranked, key=_rank)]


def _position(entry: BufferedEvent) -> int:
    return entry.position


def _rank(ranked: tuple[_Rank, Any]) -> _Rank:
    return ranked[0]


def ordered(entries: list[BufferedEvent], descending: tuple[bool, ...]) -> list[BufferedEvent]:
    """By attribute, ties by arrival; events of one identity stay in their order, and none passes an `initial`."""
    found: list[BufferedEvent] = []
    start = 0
    for place, entry in enumerate(entries):
        if entry.delta.type == "initial":
            found += _by_attribute(entries[start:place], descending)
            found.append(entry)
            start = place + 1
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
