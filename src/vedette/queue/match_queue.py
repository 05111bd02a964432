"""Pools: what equal consume watches wait for, in one line; members: the watches; groups: those who share the work."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from vedette.queue.entry import Delivery, LazyMatches, QueuedMatch, QueueEntry
from vedette.queue.line import KeyedLine, SortedLine

__all__ = ["Consumer", "ConsumerGroup", "MatchQueue"]

_COMPACT_AFTER_REMOVALS = 64
"""So many who are gone are a reason to close up."""
_COMPACT_CHUNK, _MAX_COMPACT_CHUNKS = 128, 8
"""So many are looked at then; and so many times as many, when more than half of the row is gone."""


class ConsumerGroup:
    """Interchangeable consumers. A watch without a group is one by itself."""

    __slots__ = ("_busy", "in_flight", "key", "members", "name", "pools")

    def __init__(self, key: Hashable, name: str | None) -> None:
        self.key, self.name = key, name
        self.members: list[Consumer] = []
        self.pools: list[MatchQueue] = []
        self.in_flight = 0
        """Deliveries that its members have not ended yet."""
        self._busy: Counter[Hashable] = Counter()

    def is_key_blocked(self, key: Hashable) -> bool:
        """Whether an item with this key (serialize_by) is under way."""
        return key in self._busy

    def block_key(self, key: Hashable) -> None:
        self._busy[key] += 1

    def unblock_key(self, key: Hashable) -> None:
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]
            for pool in self.pools:
                pool.unblock_key(key)


class Consumer:
    """A consumer: one watch, its bounds, and what it holds."""

    __slots__ = (
        "active",
        "deliveries",
        "group",
        "group_max_in_flight",
        "max_unacked",
        "number",
        "pool",
        "watch",
    )

    def __init__(
        self, number: int, group: ConsumerGroup, *, bound: int, group_bound: int | None, watch: Any
    ) -> None:
        self.number, self.group, self.watch = number, group, watch
        self.max_unacked = bound
        """The most it may hold (`buffer`)."""
        self.group_max_in_flight = group_bound
        """The most its group may hold (`max_in_flight`)."""
        self.deliveries: dict[str, Delivery] = {}
        self.active = True
        self.pool: MatchQueue | None = None

    @property
    def has_capacity(self) -> bool:
        return self.active and len(self.deliveries) < self.max_unacked

    def fair_share(self, limit: int | None) -> int:
        """How many one poll may hand out: a fair part of what is there (surface.md), within all bounds."""
        assert self.pool is not None
        group = self.group
        if not self.has_capacity:
            return 0
        rivals = sum(member.has_capacity for member in group.members)
        fair = max(1, -(-(len(self.pool) + group.in_flight) // rivals) - len(self.deliveries))
        room = min(fair, self.max_unacked - len(self.deliveries))
        if self.group_max_in_flight is not None:
            room = min(room, self.group_max_in_flight - group.in_flight)
        return max(0, room if limit is None else min(room, limit))


class MatchQueue:
    """All elements that match one statement, and those of them that may be handed out, in line."""

    __slots__ = (
        "_arriving",
        "_entries",
        "_gone",
        "_held_for_tick",
        "_line",
        "_present",
        "_read",
        "_written",
        "excluded_identities",
        "feed",
        "group",
        "is_serialized",
        "lazy_matches",
        "members",
    )

    def __init__(self, group: ConsumerGroup, *, serialized: bool, source: Any) -> None:
        self.group = group
        self.feed = source
        """What tells it of matches: the engine's watch that stands for all members."""
        self.is_serialized = serialized
        self.lazy_matches: LazyMatches | None = None
        """Where matches are looked at late; else each place keeps its own."""
        self.members: list[Consumer] = []
        self._entries: list[QueueEntry | None] = []
        """Everybody, as they came; who is gone is passed over, and closed up to little by little (`_compact`)."""
        self._written = self._read = 0
        """`_places[_written:_read]` is empty."""
        self._present = self._gone = 0
        """How many are there, and how many are gone since `_compact`."""
        self.excluded_identities: set[Any] | None = None
        """initial: none: matches that were there before, by identity."""
        self._line: SortedLine | KeyedLine = KeyedLine(group.is_key_blocked) if serialized else SortedLine()
        self._arriving: deque[tuple[int, QueueEntry]] = deque()
        """Commits that are not durable yet, and the places they are about, in order."""
        self._held_for_tick: dict[QueueEntry, None] | None = None
        """deliver_on: tick: places that are new since the last one."""
        group.pools.append(self)

    def __len__(self) -> int:
        """How many wait to be handed out."""
        return len(self._line)

    def hold_for_ticks(self) -> None:
        """deliver_on: tick: what comes stands in line when logical time has moved on."""
        self._held_for_tick = {}

    def add(self, place: QueueEntry) -> None:
        """It matches, or otherwise than before: it may be handed out at the tick, where the pool waits for those."""
        if self._held_for_tick is not None:
            self._held_for_tick[place] = None
        else:
            self.enqueue(place)

    def enqueue(self, place: QueueEntry) -> None:
        """It may be handed out when its commit is durable; given back, it waits for no other tick than its first."""
        if not self._held_for_tick or place not in self._held_for_tick:
            self._arriving.append((place.sequence, place))

    def end_tick(self) -> None:
        if self._held_for_tick:
            self._arriving.extend((place.sequence, place) for place in self._held_for_tick)
            self._held_for_tick = {}

    @property
    def not_durable_count(self) -> int:
        """How many are not in line yet, as far as anybody knows."""
        return len(self._arriving)

    def has_durable_arrivals(self, durable: int) -> bool:
        """Whether somebody could stand in line by now."""
        return bool(self._arriving) and self._arriving[0][0] <= durable

    def admit_durable(self, durable: int, most: int | None = None) -> None:
        """Let everyone stand in line whose commit is durable, or so many of them."""
        arriving = self._arriving
        left = len(arriving) if most is None else min(most, len(arriving))
        while left and arriving[0][0] <= durable:
            left -= 1
            sequence, place = arriving.popleft()
            stale = place.sequence != sequence or place.is_in_line
            if not stale and place.has_match and place.is_available:
                self._line.add(place)

    def remove(self, place: QueueEntry) -> None:
        self._line.remove(place)

    def pop(self, most: int) -> list[QueueEntry]:
        """Some of the first; fewer than asked for does not mean that nobody is left."""
        places: list[Any] = self._line.pop(most)
        return places

    def matches(self, places: Sequence[QueueEntry]) -> list[Mapping[str, Any]]:
        """What is handed out of each."""
        if self.lazy_matches is not None:
            return self.lazy_matches.rows([place.element for place in places])
        return [place.row for place in places]

    def unblock_key(self, key: Hashable) -> None:
        """A key of serialize_by was let go of."""
        if isinstance(self._line, KeyedLine):
            self._line.unblock_key(key)

    @property
    def places(self) -> list[QueueEntry]:
        """Everybody who matches."""
        held = self._entries[: self._written] + self._entries[self._read :]
        return [place for place in held if place is not None and place.has_match]

    def add_place(self, element: str, arrival: int) -> QueueEntry:
        place = QueueEntry(element, self, arrival)
        self._entries.append(place)
        self._present += 1
        return place

    def drop_entry(self, place: QueueEntry) -> None:
        """It matches no more."""
        place.clear()
        self._present -= 1
        self._gone += 1
        if self._gone >= _COMPACT_AFTER_REMOVALS or not self._present:
            self._compact()

    def _compact(self) -> None:
        """Go on along the row, and move those who are still there to where the others were.

        So about as much is kept of those who are gone as of those who are there, and nobody waits for all of it.
        """
        self._gone = 0
        if not self._present:
            self._forget_places()
        places = self._entries
        for _ in range(_MAX_COMPACT_CHUNKS):
            step = places[self._read : self._read + _COMPACT_CHUNK]
            kept = [place for place in step if place is not None and place.has_match]
            places[self._read : self._read + _COMPACT_CHUNK] = [None] * len(step)
            places[self._written : self._written + len(kept)] = kept
            self._written += len(kept)
            self._read += _COMPACT_CHUNK
            if self._read >= len(places):
                del places[self._written :]
                self._written = self._read = 0
            if len(places) - (self._read - self._written) <= 2 * self._present + _COMPACT_CHUNK:
                return

    def _forget_places(self) -> None:
        self._entries = []
        self._written = self._read = self._present = self._gone = 0

    def put(self, place: QueueEntry, want: QueuedMatch | None) -> None:
        """A match appeared or looks different: it leaves the line until its commit is durable."""
        self._line.remove(place)
        place.set_match(want)

    def store_matches(self) -> None:
        """Matches are looked at late no longer: each place keeps what it is now."""
        for place in self.places if self.lazy_matches is not None else ():
            place.set_match(place.best_match)
        self.lazy_matches = None

    def clear(self) -> None:
        """Nobody draws from it any more: let go of all places, which know it."""
        self._forget_places()
        self._arriving.clear()
        self._line = SortedLine()
        self._held_for_tick = None

    def validate(self) -> None:
        """Raise AssertionError unless only what may be handed out stands in line; for tests."""
        self._line.validate()
        for place in self.places:
            assert place.has_match
            assert place.queued_element is None or place in place.queued_element.entries
            assert not place.is_in_line or place.is_available
