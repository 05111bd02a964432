"""Lines of places that wait to be handed out: one by rank, or one for each key with only its first place in front.

Places leave a line in three ways: handed out, taken out, or put in again elsewhere. Nothing is looked up for it: every
entry carries the ticket that its place had when it stood in line, and one whose place has another ticket is void.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, Protocol

from vedette.watch.ordering import Rank

__all__ = ["Line", "LongLine", "SerialLine", "Stander"]

_SPARE = 64
"""So many void entries are no reason to sort anew."""
_BLOCK = 512
"""A block of a long line is split when it has twice as many entries."""


class Stander(Protocol):
    """What stands in line."""

    ticket: int
    """Changes whenever it leaves the line or stands elsewhere in it; see `Line.put`."""
    waiting: bool

    def __lt__(self, other: Any, /) -> bool:
        """Whether it came first."""
        ...

    @property
    def rank(self) -> Rank: ...

    @property
    def serial(self) -> Hashable: ...


_Entry = tuple[Any, ...]
"""The rank, flat, so that one comparison decides; then the place, which knows who came first, and its ticket."""


def _entry(place: Stander) -> _Entry:
    return (*place.rank, place, place.ticket)


def _valid(entry: _Entry) -> bool:
    return bool(entry[-2].ticket == entry[-1])


class Line:
    """One line, a short one: by rank, then by arrival."""

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
        heappush(self._heap, _entry(place))
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
        return heap[0][-2] if heap else None

    def validate(self) -> None:
        """Raise AssertionError unless each place stands in line once; for tests."""
        standing = [entry[-2] for entry in self._heap if _valid(entry)]
        assert len(standing) == self._length == len({id(place) for place in standing})


class LongLine:
    """One line of any length, by rank, then by arrival: sorted blocks.

    A heap would make whoever takes pay for the length of the line; here it costs those who come a little more, and
    taking from a million is as fast as taking from a thousand.
    """

    __slots__ = ("_blocks", "_entries", "_lasts", "_length")

    def __init__(self) -> None:
        self._blocks: list[list[_Entry]] = []
        self._lasts: list[_Entry] = []
        """The last entry of each block."""
        self._entries = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, place: Stander) -> None:
        """Stand in line; who stands in it already is moved to where its rank now says."""
        self._length += not place.waiting
        place.ticket += 1
        place.waiting = True
        self._insert(_entry(place))
        self._tidy()

    def _insert(self, entry: _Entry) -> None:
        self._entries += 1
        blocks, lasts = self._blocks, self._lasts
        if not blocks:
            blocks.append([entry])
            lasts.append(entry)
            return
        index = len(blocks) - 1 if lasts[-1] < entry else bisect_left(lasts, entry)
        block = blocks[index]
        if block[-1] < entry:
            block.append(entry)
            lasts[index] = entry
        else:
            insort(block, entry)
        if len(block) > 2 * _BLOCK:
            self._split(index)

    def _split(self, index: int) -> None:
        block = self._blocks[index]
        late = block[_BLOCK:]
        del block[_BLOCK:]
        self._blocks.insert(index + 1, late)
        self._lasts[index : index + 1] = [block[-1], late[-1]]

    def _tidy(self) -> None:
        """Throw void entries away when they are more than half."""
        if self._entries <= 2 * self._length + _SPARE:
            return
        entries = [entry for block in self._blocks for entry in block if _valid(entry)]
        self._blocks = [entries[start : start + _BLOCK] for start in range(0, len(entries), _BLOCK)]
        self._lasts = [block[-1] for block in self._blocks]
        self._entries = len(entries)

    def discard(self, place: Stander) -> None:
        if place.waiting:
            place.waiting = False
            place.ticket += 1
            self._length -= 1
            self._tidy()

    def pop(self, most: int) -> list[Stander]:
        """Hand out the first ones."""
        popped: list[Stander] = []
        while self._blocks and len(popped) < most:
            block = self._blocks[0]
            entries = block[: most - len(popped)]
            del block[: most - len(popped)]  # let go of here, while they are in the cache
            places = [entry[-2] for entry in entries]
            popped += [
                place for place, entry in zip(places, entries, strict=True) if place.ticket == entry[-1]
            ]
            self._entries -= len(entries)
            if not block:
                del self._blocks[0], self._lasts[0]
        for place in popped:
            self.discard(place)
        return popped

    def validate(self) -> None:
        """Raise AssertionError unless each place stands in line once, and the blocks are sorted; for tests."""
        assert all(self._blocks)
        entries = [entry for block in self._blocks for entry in block]
        assert len(entries) == self._entries
        assert all(one < other for one, other in pairwise(entries))
        assert self._lasts == [block[-1] for block in self._blocks]
        standing = [entry[-2] for entry in entries if _valid(entry)]
        assert len(standing) == self._length == len({id(place) for place in standing})


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
            heappush(self._front, _entry(place))
            self._tidy()

    def _tidy(self) -> None:
        """Keep one entry of each first, when there are many more entries than lines: perhaps nobody takes any."""
        if len(self._front) > 2 * len(self._lines) + _SPARE:
            front = {id(entry[-2]): entry for entry in self._front if self._may_go(entry)}
            self._front = list(front.values())
            heapify(self._front)

    def first(self) -> Stander | None:
        front = self._front
        while front and not self._may_go(front[0]):
            heappop(front)
        return front[0][-2] if front else None

    def _may_go(self, entry: _Entry) -> bool:
        place: Stander = entry[-2]
        line = self._lines.get(place.serial)
        return _valid(entry) and line is not None and line.first() is place and not self._held(place.serial)

    def pop(self, most: int) -> list[Stander]:
        """Hand out the first, alone: whether the next may go depends on what becomes of it."""
        place = self.first() if most > 0 else None
        if place is None:
            return []
        heappop(self._front)
        self._leave(self._lines[place.serial], place)
        return [place]

    def _leave(self, line: Line, place: Stander) -> None:
        line.discard(place)
        self._length -= 1
        if not line:
            del self._lines[place.serial]

    def validate(self) -> None:
        """Raise AssertionError unless every line that nobody holds has its first in front; for tests."""
        in_front = {id(entry[-2]) for entry in self._front if _valid(entry)}
        assert self._length == sum(map(len, self._lines.values()))
        for key, line in self._lines.items():
            line.validate()
            assert line
            assert self._held(key) or id(line.first()) in in_front
