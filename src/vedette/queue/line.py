"""Lines: ordered collections of the entries that are ready for delivery.

`HeapLine` and `SortedLine` order entries by rank. `KeyedLine` has one line per key, and only the first entry of each
line can be delivered.

Removal is lazy. A line stores items: an entry with its rank and its `line_version` at the time it was added. Removing
or moving an entry increments its version, which makes the item obsolete. Obsolete items are skipped and later removed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, Protocol

from vedette.watch.ordering import SortKey

__all__ = ["HeapLine", "KeyedLine", "LineEntry", "SortedLine"]

_MIN_COMPACTION_SIZE = 64
"""Obsolete items up to this number do not trigger a compaction."""
_BLOCK_ITEMS = 512
"""Size of a block of a sorted line. A block is split when it has twice as many items."""


class LineEntry(Protocol):
    """An entry that can be in a line."""

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


_Item = tuple[Any, ...]
"""The parts of the rank, then the entry (compared by arrival) and its version. Flat, so that items compare fast."""


def _make_item(entry: LineEntry) -> _Item:
    return (*entry.rank, entry, entry.line_version)


def _is_current(item: _Item) -> bool:
    return bool(item[-2].line_version == item[-1])


class HeapLine:
    """A short line: a heap by rank, then by arrival."""

    __slots__ = ("_heap", "_length")

    def __init__(self) -> None:
        self._heap: list[_Item] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, entry: LineEntry) -> None:
        """Add the entry, or move it to the position of its current rank."""
        self._length += not entry.is_in_line
        entry.line_version += 1
        entry.is_in_line = True
        heappush(self._heap, _make_item(entry))
        if len(self._heap) > 2 * self._length + _MIN_COMPACTION_SIZE:
            self._heap = [item for item in self._heap if _is_current(item)]
            heapify(self._heap)

    def remove(self, entry: LineEntry) -> None:
        if entry.is_in_line:
            entry.is_in_line = False
            entry.line_version += 1
            self._length -= 1

    def peek(self) -> LineEntry | None:
        heap = self._heap
        while heap and not _is_current(heap[0]):
            heappop(heap)
        return heap[0][-2] if heap else None

    def validate(self) -> None:
        """Raise AssertionError unless each entry is in the line once. For tests."""
        current = [item[-2] for item in self._heap if _is_current(item)]
        assert len(current) == self._length == len({id(entry) for entry in current})


class SortedLine:
    """A line of any length in sorted blocks, by rank, then by arrival.

    With a heap, taking an entry costs more the longer the line is. Here adding costs a little more, and taking from
    a million entries is as fast as from a thousand. `sortedcontainers` is not compiled and has no lazy removal.
    """

    __slots__ = ("_block_maxima", "_blocks", "_item_count", "_length")

    def __init__(self) -> None:
        self._blocks: list[list[_Item]] = []
        self._block_maxima: list[_Item] = []
        """The last item of each block."""
        self._item_count = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, entry: LineEntry) -> None:
        """Add the entry, or move it to the position of its current rank."""
        self._length += not entry.is_in_line
        entry.line_version += 1
        entry.is_in_line = True
        self._insert(_make_item(entry))
        self._compact()

    def _insert(self, item: _Item) -> None:
        self._item_count += 1
        blocks, lasts = self._blocks, self._block_maxima
        if not blocks:
            blocks.append([item])
            lasts.append(item)
            return
        index = len(blocks) - 1 if lasts[-1] < item else bisect_left(lasts, item)
        block = blocks[index]
        if block[-1] < item:
            block.append(item)
            lasts[index] = item
        else:
            insort(block, item)
        if len(block) > 2 * _BLOCK_ITEMS:
            self._split(index)

    def _split(self, index: int) -> None:
        block = self._blocks[index]
        second_half = block[_BLOCK_ITEMS:]
        del block[_BLOCK_ITEMS:]
        self._blocks.insert(index + 1, second_half)
        self._block_maxima[index : index + 1] = [block[-1], second_half[-1]]

    def _compact(self) -> None:
        """Remove obsolete items if more than half of the items are obsolete."""
        if self._item_count <= 2 * self._length + _MIN_COMPACTION_SIZE:
            return
        items = [item for block in self._blocks for item in block if _is_current(item)]
        self._blocks = [items[start : start + _BLOCK_ITEMS] for start in range(0, len(items), _BLOCK_ITEMS)]
        self._block_maxima = [block[-1] for block in self._blocks]
        self._item_count = len(items)

    def remove(self, entry: LineEntry) -> None:
        if entry.is_in_line:
            entry.is_in_line = False
            entry.line_version += 1
            self._length -= 1
            self._compact()

    def pop(self, limit: int) -> list[LineEntry]:
        """Remove and return the first entries."""
        popped: list[LineEntry] = []
        while self._blocks and len(popped) < limit:
            block = self._blocks[0]
            items = block[: limit - len(popped)]
            del block[: limit - len(popped)]
            entries = [item[-2] for item in items]
            popped += [
                entry for entry, item in zip(entries, items, strict=True) if entry.line_version == item[-1]
            ]
            self._item_count -= len(items)
            if not block:
                del self._blocks[0], self._block_maxima[0]
        for entry in popped:
            self.remove(entry)
        return popped

    def validate(self) -> None:
        """Raise AssertionError unless each entry is in the line once and the blocks are sorted. For tests."""
        assert all(self._blocks)
        items = [item for block in self._blocks for item in block]
        assert len(items) == self._item_count
        assert all(one < other for one, other in pairwise(items))
        assert self._block_maxima == [block[-1] for block in self._blocks]
        current = [item[-2] for item in items if _is_current(item)]
        assert len(current) == self._length == len({id(entry) for entry in current})


class KeyedLine:
    """One line per key. Only the head of a line is deliverable, and only while its key is not blocked."""

    __slots__ = ("_heads", "_is_blocked", "_length", "_lines")

    def __init__(self, is_blocked: Callable[[Hashable], bool]) -> None:
        self._length = 0
        self._lines: dict[Hashable, HeapLine] = {}
        self._heads: list[_Item] = []
        """First entries of the lines. An item whose entry is no longer first in its line is obsolete."""
        self._is_blocked = is_blocked

    def __len__(self) -> int:
        return self._length

    def add(self, entry: LineEntry) -> None:
        line = self._lines.get(entry.serialization_key)
        if line is None:
            line = self._lines[entry.serialization_key] = HeapLine()
        moved = entry.is_in_line
        self._length += not moved
        line.add(entry)
        if moved or line.peek() is entry:
            self.expose_head(entry.serialization_key)

    def remove(self, entry: LineEntry) -> None:
        line = self._lines.get(entry.serialization_key)
        if line is not None and entry.is_in_line:
            self._leave(line, entry)
            self.expose_head(entry.serialization_key)

    def expose_head(self, key: Hashable) -> None:
        """Make the head of the key's line deliverable, after the key was unblocked or its line has a new head."""
        line = self._lines.get(key)
        entry = line.peek() if line is not None else None
        if entry is not None and not self._is_blocked(key):
            heappush(self._heads, _make_item(entry))
            self._compact()

    def _compact(self) -> None:
        """Keep one item per head when there are many more items than lines."""
        if len(self._heads) > 2 * len(self._lines) + _MIN_COMPACTION_SIZE:
            deliverable = {id(item[-2]): item for item in self._heads if self._is_deliverable(item)}
            self._heads = list(deliverable.values())
            heapify(self._heads)

    def peek(self) -> LineEntry | None:
        heads = self._heads
        while heads and not self._is_deliverable(heads[0]):
            heappop(heads)
        return heads[0][-2] if heads else None

    def _is_deliverable(self, item: _Item) -> bool:
        entry: LineEntry = item[-2]
        line = self._lines.get(entry.serialization_key)
        return (
            _is_current(item)
            and line is not None
            and line.peek() is entry
            and not self._is_blocked(entry.serialization_key)
        )

    def pop(self, limit: int) -> list[LineEntry]:
        """Remove and return the first deliverable entry only: delivering it blocks its key."""
        entry = self.peek() if limit > 0 else None
        if entry is None:
            return []
        heappop(self._heads)
        self._leave(self._lines[entry.serialization_key], entry)
        return [entry]

    def _leave(self, line: HeapLine, entry: LineEntry) -> None:
        line.remove(entry)
        self._length -= 1
        if not line:
            del self._lines[entry.serialization_key]

    def validate(self) -> None:
        """Raise AssertionError unless every line with an unblocked key has its head among the heads. For tests."""
        heads = {id(item[-2]) for item in self._heads if _is_current(item)}
        assert self._length == sum(map(len, self._lines.values()))
        for key, line in self._lines.items():
            line.validate()
            assert line
            assert self._is_blocked(key) or id(line.peek()) in heads
