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

from vedette.watch.ordering import SortKey

__all__ = ["HeapLine", "KeyedLine", "LineItem", "SortedLine"]

_SPARE = 64
"""So many void entries are no reason to sort anew."""
_BLOCK = 512
"""A block of a long line is split when it has twice as many entries."""


class LineItem(Protocol):
    """What stands in line."""

    line_version: int
    """Changes whenever it leaves the line or stands elsewhere in it; see `HeapLine.put`."""
    is_in_line: bool

    def __lt__(self, other: Any, /) -> bool:
        """Whether it came first."""
        ...

    @property
    def rank(self) -> SortKey: ...

    @property
    def serialization_key(self) -> Hashable: ...


_Entry = tuple[Any, ...]
"""The rank, flat, so that one comparison decides; then the place, which knows who came first, and its ticket."""


def _entry(place: LineItem) -> _Entry:
    return (*place.rank, place, place.line_version)


def _is_current(entry: _Entry) -> bool:
    return bool(entry[-2].line_version == entry[-1])


class HeapLine:
    """One line, a short one: by rank, then by arrival."""

    __slots__ = ("_heap", "_length")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, place: LineItem) -> None:
        """Stand in line; who stands in it already is moved to where its rank now says."""
        self._length += not place.is_in_line
        place.line_version += 1
        place.is_in_line = True
        heappush(self._heap, _entry(place))
        if len(self._heap) > 2 * self._length + _SPARE:
            self._heap = [entry for entry in self._heap if _is_current(entry)]
            heapify(self._heap)

    def remove(self, place: LineItem) -> None:
        if place.is_in_line:
            place.is_in_line = False
            place.line_version += 1
            self._length -= 1

    def peek(self) -> LineItem | None:
        heap = self._heap
        while heap and not _is_current(heap[0]):
            heappop(heap)
        return heap[0][-2] if heap else None

    def validate(self) -> None:
        """Raise AssertionError unless each place stands in line once; for tests."""
        standing = [entry[-2] for entry in self._heap if _is_current(entry)]
        assert len(standing) == self._length == len({id(place) for place in standing})


class SortedLine:
    """One line of any length, by rank, then by arrival: sorted blocks.

    A heap would make whoever takes pay for the length of the line; here it costs those who come a little more, and
    taking from a million is as fast as taking from a thousand.
    """

    __slots__ = ("_block_maxima", "_blocks", "_entries", "_length")

    def __init__(self) -> None:
        self._blocks: list[list[_Entry]] = []
        self._block_maxima: list[_Entry] = []
        """The last entry of each block."""
        self._entries = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, place: LineItem) -> None:
        """Stand in line; who stands in it already is moved to where its rank now says."""
        self._length += not place.is_in_line
        place.line_version += 1
        place.is_in_line = True
        self._insert(_entry(place))
        self._compact()

    def _insert(self, entry: _Entry) -> None:
        self._entries += 1
        blocks, lasts = self._blocks, self._block_maxima
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
        self._block_maxima[index : index + 1] = [block[-1], late[-1]]

    def _compact(self) -> None:
        """Throw void entries away when they are more than half."""
        if self._entries <= 2 * self._length + _SPARE:
            return
        entries = [entry for block in self._blocks for entry in block if _is_current(entry)]
        self._blocks = [entries[start : start + _BLOCK] for start in range(0, len(entries), _BLOCK)]
        self._block_maxima = [block[-1] for block in self._blocks]
        self._entries = len(entries)

    def remove(self, place: LineItem) -> None:
        if place.is_in_line:
            place.is_in_line = False
            place.line_version += 1
            self._length -= 1
            self._compact()

    def pop(self, most: int) -> list[LineItem]:
        """Hand out the first ones."""
        popped: list[LineItem] = []
        while self._blocks and len(popped) < most:
            block = self._blocks[0]
            entries = block[: most - len(popped)]
            del block[: most - len(popped)]  # let go of here, while they are in the cache
            places = [entry[-2] for entry in entries]
            popped += [
                place for place, entry in zip(places, entries, strict=True) if place.line_version == entry[-1]
            ]
            self._entries -= len(entries)
            if not block:
                del self._blocks[0], self._block_maxima[0]
        for place in popped:
            self.remove(place)
        return popped

    def validate(self) -> None:
        """Raise AssertionError unless each place stands in line once, and the blocks are sorted; for tests."""
        assert all(self._blocks)
        entries = [entry for block in self._blocks for entry in block]
        assert len(entries) == self._entries
        assert all(one < other for one, other in pairwise(entries))
        assert self._block_maxima == [block[-1] for block in self._blocks]
        standing = [entry[-2] for entry in entries if _is_current(entry)]
        assert len(standing) == self._length == len({id(place) for place in standing})


class KeyedLine:
    """A line for each key. Only the first of a line is handed out, and only while nobody holds its key."""

    __slots__ = ("_heads", "_held", "_length", "_lines")

    def __init__(self, held: Callable[[Hashable], bool]) -> None:
        self._length = 0
        self._lines: dict[Hashable, HeapLine] = {}
        self._heads: list[_Entry] = []
        """Firsts of lines. Entries of places that are not first any more are void."""
        self._held = held

    def __len__(self) -> int:
        return self._length

    def add(self, place: LineItem) -> None:
        line = self._lines.get(place.serialization_key)
        if line is None:
            line = self._lines[place.serialization_key] = HeapLine()
        moved = place.is_in_line
        self._length += not moved
        line.add(place)
        if moved or line.peek() is place:
            self.unblock_key(place.serialization_key)

    def remove(self, place: LineItem) -> None:
        line = self._lines.get(place.serialization_key)
        if line is not None and place.is_in_line:
            self._leave(line, place)
            self.unblock_key(place.serialization_key)

    def unblock_key(self, key: Hashable) -> None:
        """The key was let go of, or its line has another first: put that in front."""
        line = self._lines.get(key)
        place = line.peek() if line is not None else None
        if place is not None and not self._held(key):
            heappush(self._heads, _entry(place))
            self._compact()

    def _compact(self) -> None:
        """Keep one entry of each first, when there are many more entries than lines: perhaps nobody takes any."""
        if len(self._heads) > 2 * len(self._lines) + _SPARE:
            front = {id(entry[-2]): entry for entry in self._heads if self._is_deliverable(entry)}
            self._heads = list(front.values())
            heapify(self._heads)

    def peek(self) -> LineItem | None:
        front = self._heads
        while front and not self._is_deliverable(front[0]):
            heappop(front)
        return front[0][-2] if front else None

    def _is_deliverable(self, entry: _Entry) -> bool:
        place: LineItem = entry[-2]
        line = self._lines.get(place.serialization_key)
        return (
            _is_current(entry)
            and line is not None
            and line.peek() is place
            and not self._held(place.serialization_key)
        )

    def pop(self, most: int) -> list[LineItem]:
        """Hand out the first, alone: whether the next may go depends on what becomes of it."""
        place = self.peek() if most > 0 else None
        if place is None:
            return []
        heappop(self._heads)
        self._leave(self._lines[place.serialization_key], place)
        return [place]

    def _leave(self, line: HeapLine, place: LineItem) -> None:
        line.remove(place)
        self._length -= 1
        if not line:
            del self._lines[place.serialization_key]

    def validate(self) -> None:
        """Raise AssertionError unless every line that nobody holds has its first in front; for tests."""
        in_front = {id(entry[-2]) for entry in self._heads if _is_current(entry)}
        assert self._length == sum(map(len, self._lines.values()))
        for key, line in self._lines.items():
            line.validate()
            assert line
            assert self._held(key) or id(line.peek()) in in_front
