"""`ordering: causal` across partitions: holds a change until every partition has passed its offset. No I/O.

Changes of one partition arrive in order, but partitions progress independently. An effect comes after its cause in the
journal, possibly in another partition. A causal watch therefore keeps the journal's order: changes are buffered until
the end of a batch confirms that everything up to an offset was delivered, including for idle partitions
(`receiver.BatchCompleted`), and are then released in offset order.

Each watch has its own buffer, because the end of a batch that did not include the watch says nothing about the watch's
earlier changes.

The buffer is bounded. A watch that exceeds the bound must resync, since causal order with a gap is not causal order.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

__all__ = ["MAX_BUFFERED_CHANGES", "CausalBuffer"]

MAX_BUFFERED_CHANGES = 10_000
"""Maximum number of changes in one buffer."""

Held = TypeVar("Held")


class CausalBuffer(Generic[Held]):
    """`add` each change once; call `release_up_to` when a batch that includes the watch is complete."""

    def __init__(self, max_changes: int = MAX_BUFFERED_CHANGES) -> None:
        self._max_changes = max_changes
        self._buffered: list[tuple[int, int, Held]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._buffered)

    def add(self, offset: int, item: Held) -> bool:
        """Buffer an item. If the buffer is full, clear it and return False."""
        self._arrivals += 1
        heappush(self._buffered, (offset, self._arrivals, item))
        if len(self._buffered) <= self._max_changes:
            return True
        self._buffered.clear()
        return False

    def release_up_to(self, offset: int) -> list[Held]:
        """Remove and return all items up to an offset, in offset order."""
        found: list[Held] = []
        while self._buffered and self._buffered[0][0] <= offset:
            found.append(heappop(self._buffered)[2])
        return found
