"""Lines of places that wait to be handed out: one by rank, or one for each key with only its first place in front.

Places leave a line in three ways: handed out, taken out, or put in again elsewhere. The heaps are told of none of it:
every entry carries the ticket that its place had when it stood in line, and one whose place has another ticket is void.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import Protocol

from vedette.consume.rank import Rank

__all__ = ["Line", "SerialLine", "Stander"]

_SPARE = 64
"""So many void entries are no reason to sort anew."""


class Stander(Protocol):
    """What stands in line."""

    arrival: int
    ticket: int
    """Changes whenever it leaves the line or stands elsewhere in it; see `Line.put`."""
    waiting: bool

    @property
    def rank(self) -> Rank: ...

    @property
    def serial(self) -> Hashable: ...


_Entry = tuple[Rank, int, int, Stander]


class Line:
    """One line: by rank, then by arrival."""

    __slots__ = ("_heap", "_length")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, place: Stander) -> None:
        """Stand in line; who stands in it already is moved to where its rank now says."""
        self._length += not place.waiting
        place.ticket += 1
        place.waiting = True
        heappush(self._heap, (place.rank, place.arrival, place.ticket, place))
        if len(self._heap) > 2 * self._length + _SPARE:
            self._heap = [entry for entry in self._heap if _valid(entry)]
            heapify(self._heap)

    def discard(self, place: Stander) -> None:
        if place.waiting:
            place.waiting = False
            place.ticket += 1
            self._length -= 1

    def first(self) -> Stander | None:
        heap = self._heap
        while heap and not _valid(heap[0]):
            heappop(heap)
        return heap[0][3] if heap else None

    def pop(self) -> Stander | None:
        """Hand out the first."""
        place = self.first()
        if place is not None:
            heappop(self._heap)
            self.discard(place)
        return place

    def validate(self) -> None:
        """Raise AssertionError unless each place stands in line once; for tests."""
        standing = [entry[3] for entry in self._heap if _valid(entry)]
        assert len(standing) == self._length == len({id(place) for place in standing})


def _valid(entry: _Entry) -> bool:
    return entry[3].ticket == entry[2]


class SerialLine:
    """A line for each key. Only the first of a line is handed out, and only while nobody holds its key."""

    __slots__ = ("_front", "_held", "_length", "_lines")

    def __init__(self, held: Callable[[Hashable], bool]) -> None:
        self._length = 0
        self._lines: dict[Hashable, Line] = {}
        self._front: list[_Entry] = []
        """Firsts of lines. Entries of places that are not first any more are void."""
        self._held = held

    def __len__(self) -> int:
        return self._length

    def put(self, place: Stander) -> None:
        line = self._lines.get(place.serial)
        if line is None:
            line = self._lines[place.serial] = Line()
        moved = place.waiting
        self._length += not moved
        line.put(place)
        if moved or line.first() is place:
            self.offer(place.serial)

    def discard(self, place: Stander) -> None:
        line = self._lines.get(place.serial)
        if line is not None and place.waiting:
            self._leave(line, place)
            self.offer(place.serial)

    def offer(self, key: Hashable) -> None:
        """The key was let go of, or its line has another first: put that in front."""
        line = self._lines.get(key)
        place = line.first() if line is not None else None
        if place is not None and not self._held(key):
            heappush(self._front, (place.rank, place.arrival, place.ticket, place))

    def first(self) -> Stander | None:
        front = self._front
        while front and not self._may_go(front[0]):
            heappop(front)
        return front[0][3] if front else None

    def _may_go(self, entry: _Entry) -> bool:
        place = entry[3]
        line = self._lines.get(place.serial)
        return _valid(entry) and line is not None and line.first() is place and not self._held(place.serial)

    def pop(self) -> Stander | None:
        place = self.first()
        if place is not None:
            heappop(self._front)
            self._leave(self._lines[place.serial], place)
        return place

    def _leave(self, line: Line, place: Stander) -> None:
        line.discard(place)
        self._length -= 1
        if not line:
            del self._lines[place.serial]

    def validate(self) -> None:
        """Raise AssertionError unless every line that nobody holds has its first in front; for tests."""
        in_front = {id(entry[3]) for entry in self._front if _valid(entry)}
        assert self._length == sum(map(len, self._lines.values()))
        for key, line in self._lines.items():
            line.validate()
            assert line
            assert self._held(key) or id(line.first()) in in_front
