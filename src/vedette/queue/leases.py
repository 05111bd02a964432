"""Deadlines of leases and delays, ordered by time.

A deadline that no longer applies, because a lease was extended or a delivery ended, stays in the heap and is skipped.
The heap is compacted when more than half of it is obsolete.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from vedette.queue.entry import Delivery, QueuedElement

__all__ = ["DeadlineHeap"]

_MIN_COMPACTION_SIZE = 1024
"""The heap is not compacted below this size."""


class DeadlineHeap:
    """Deliveries by the end of their lease, and elements by the end of their delay, on the monotonic clock."""

    __slots__ = ("_compact_above", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Delivery | QueuedElement]] = []
        self._count = 0
        """Number of pushes. It orders deadlines of the same time."""
        self._compact_above = _MIN_COMPACTION_SIZE

    def push(self, deadline: float, subject: Delivery | QueuedElement) -> None:
        self._count += 1
        heappush(self._heap, (deadline, self._count, subject))
        if len(self._heap) > self._compact_above:
            self._heap = [item for item in self._heap if _is_current(item[0], item[2])]
            heapify(self._heap)
            self._compact_above = 2 * len(self._heap) + _MIN_COMPACTION_SIZE

    def next_deadline(self) -> float | None:
        """Return when the next lease or delay ends, or None."""
        heap = self._heap
        while heap and not _is_current(heap[0][0], heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Delivery | QueuedElement | None:
        """Remove and return the next subject whose deadline is `now` or earlier."""
        deadline = self.next_deadline()
        return heappop(self._heap)[2] if deadline is not None and deadline <= now else None

    def clear(self) -> None:
        self._heap.clear()

    def __len__(self) -> int:
        """The size of the heap, obsolete deadlines included."""
        return len(self._heap)


def _is_current(deadline: float, subject: Delivery | QueuedElement) -> bool:
    if isinstance(subject, Delivery):
        return subject.is_open and subject.deadline == deadline
    return subject.delayed_until == deadline
