"""Lines of entries that are ready for delivery, by rank; or one line per key, of which only the head is
deliverable.

Removal is lazy. A line item stores the `line_version` that its entry had when it was added. Leaving or moving
increments the version of the entry, and items with an older version are obsolete: skipped, and compacted later.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, Protocol

from vedette.watch.ordering import SortKey

__all__ = ["HeapLine", "KeyedLine", "LineItem", "SortedLine"]

_MIN_COMPACTION_SIZE = 64
"""Obsolete items up to this number do not trigger a compaction."""
_BLOCK = 512
"""A block of a sorted line is split when it has twice as many items."""


class LineItem(Protocol):
    """What a line contains."""

    line_version: int
    """Incremented whenever the entry leaves the line or moves in it."""
    is_in_line: bool

    def __lt__(self, other: Any, /) -> bool:
        """True if this entry arrived first."""
        ...

    @property
    def rank(self) -> SortKey: ...

    @property
    def serialization_key(self) -> Hashable: ...


_Entry = tuple[Any, ...]
"""The rank, flattened so that one tuple comparison decides; then the entry (compared by arrival) and its version."""


def _entry(entry: LineItem) -> _Entry:
    return (*entry.rank, entry, entry.line_version)


def _is_current(entry: _Entry) -> bool:
    return bool(entry[-2].line_version == entry[-1])


class HeapLine:
    """A short line: a heap by rank, then by arrival."""

    __slots__ = ("_heap", "_length")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, place: LineItem) -> None:
        """Add the entry, or move it to the position of its current rank."""
        self._length += not place.is_in_line
        place.line_version += 1
        place.is_in_line = True
        heappush(self._heap, _entry(place))
        if len(self._heap) > 2 * self._length + _MIN_COMPACTION_SIZE:
            self._heap = [entry for entry in self._heap if _is_current(entry)]
            heapify(self._heap)

    def remove(self, entry: LineItem) -> None:
        if entry.is_in_line:
            entry.is_in_line = False
            entry.line_version += 1
            self._length -= 1

    def peek(self) -> LineItem | None:
        heap = self._heap
        while heap and not _is_current(heap[0]):
            heappop(heap)
        return heap[0][-2] if heap else None

    def validate(self) -> None:
        """Raise AssertionError unless each entry is in the line once. For tests."""
        standing = [entry[-2] for entry in self._heap if _is_current(entry)]
        assert len(standing) == self._length == len({id(place) for place in standing})


class SortedLine:
    """A line of any length in sorted blocks, by rank, then by arrival.

    With a heap, taking an entry costs more the longer the line is. Here adding costs a little more, and taking from
    a million entries is as fast as from a thousand. `sortedcontainers` is not compiled and has no lazy removal.
    """

    __slots__ = ("_block_maxima", "_blocks", "_entries", "_length")

    def __init__(self) -> None:
        self._blocks: list[list[_Entry]] = []
        self._block_maxima: list[_Entry] = []
        """The last item of each block."""
        self._entries = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, entry: LineItem) -> None:
        """Add the entry, or move it to the position of its current rank."""
        self._length += not entry.is_in_line
        entry.line_version += 1
        entry.is_in_line = True
        self._insert(_entry(entry))
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
        lazy = block[_BLOCK:]
        del block[_BLOCK:]
        self._blocks.insert(index + 1, lazy)
        self._block_maxima[index : index + 1] = [block[-1], lazy[-1]]

    def _compact(self) -> None:
        """Remove obsolete items when they are more than half."""
        if self._entries <= 2 * self._length + _MIN_COMPACTION_SIZE:
            return
        entries = [entry for block in self._blocks for entry in block if _is_current(entry)]
        self._blocks = [entries[start : start + _BLOCK] for start in range(0, len(entries), _BLOCK)]
        self._block_maxima = [block[-1] for block in self._blocks]
        self._entries = len(entries)

    def remove(self, entry: LineItem) -> None:
        if entry.is_in_line:
            entry.is_in_line = False
            entry.line_version += 1
            self._length -= 1
            self._compact()

    def pop(self, limit: int) -> list[LineItem]:
        """Remove and return the first entries."""
        popped: list[LineItem] = []
        while self._blocks and len(popped) < limit:
            block = self._blocks[0]
            entries = block[: limit - len(popped)]
            del block[: limit - len(popped)]  # freed here, while they are in the CPU cache
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
        """Raise AssertionError unless each entry is in the line once and the blocks are sorted. For tests."""
        assert all(self._blocks)
        entries = [entry for block in self._blocks for entry in block]
        assert len(entries) == self._entries
        assert all(one < other for one, other in pairwise(entries))
        assert self._block_maxima == [block[-1] for block in self._blocks]
        standing = [entry[-2] for entry in entries if _is_current(entry)]
        assert len(standing) == self._length == len({id(place) for place in standing})


class KeyedLine:
    """One line per key. Only the head of a line is deliverable, and only while its key is not blocked."""

    __slots__ = ("_heads", "_held", "_length", "_lines")

    def __init__(self, held: Callable[[Hashable], bool]) -> None:
        self._length = 0
        self._lines: dict[Hashable, HeapLine] = {}
        self._heads: list[_Entry] = []
        """Heads of lines. Items of entries that are no longer the head are obsolete."""
        self._held = held

    def __len__(self) -> int:
        return self._length

    def add(self, entry: LineItem) -> None:
        line = self._lines.get(entry.serialization_key)
        if line is None:
            line = self._lines[entry.serialization_key] = HeapLine()
        moved = entry.is_in_line
        self._length += not moved
        line.add(entry)
        if moved or line.peek() is entry:
            self.expose_head(entry.serialization_key)

    def remove(self, entry: LineItem) -> None:
        line = self._lines.get(entry.serialization_key)
        if line is not None and entry.is_in_line:
            self._leave(line, entry)
            self.expose_head(entry.serialization_key)

    def expose_head(self, key: Hashable) -> None:
        """Make the head of the key's line deliverable, after the key was unblocked or its line has a new head."""
        line = self._lines.get(key)
        entry = line.peek() if line is not None else None
        if entry is not None and not self._held(key):
            heappush(self._heads, _entry(entry))
            self._compact()

    def _compact(self) -> None:
        """Keep one item per head when there are many more items than lines."""
        if len(self._heads) > 2 * len(self._lines) + _MIN_COMPACTION_SIZE:
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

    def pop(self, limit: int) -> list[LineItem]:
        """Remove and return the first deliverable entry only: delivering it blocks its key."""
        entry = self.peek() if limit > 0 else None
        if entry is None:
            return []
        heappop(self._heads)
        self._leave(self._lines[entry.serialization_key], entry)
        return [entry]

    def _leave(self, line: HeapLine, entry: LineItem) -> None:
        line.remove(entry)
        self._length -= 1
        if not line:
            del self._lines[entry.serialization_key]

    def validate(self) -> None:
        """Raise AssertionError unless every line with an unblocked key has its head among the heads. For tests."""
        in_front = {id(entry[-2]) for entry in self._heads if _is_current(entry)}
        assert self._length == sum(map(len, self._lines.values()))
        for key, line in self._lines.items():
            line.validate()
            assert line
            assert self._held(key) or id(line.peek()) in in_front
