"""`ordering: causal` over all partitions: an event is held back until every partition has passed its position. Pure.

Within a partition changes come in order; partitions go at their own pace. What a change caused stands later in the
journal, perhaps in another partition. So for a causal watch the order of the journal is kept: what arrives is held
until the end of a batch says that everything up to some offset was told, of idle partitions too
(`ingest_desk.BatchCompleted`), and is then handed on in the order of offsets.

Each watch has a hold of its own: the end of a batch that did not know the watch yet says nothing about what the watch
is told of the past.

What is held is bounded. When a watch would hold more, it must begin anew: a causal order with a hole is none.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

__all__ = ["MAX_BUFFERED_CHANGES", "CausalBuffer"]

MAX_BUFFERED_CHANGES = 10_000
"""Changes that one hold keeps back."""

Held = TypeVar("Held")


class CausalBuffer(Generic[Held]):
    """`keep` what arrives, each thing once; `release` when a batch that knew the watch is complete."""

    def __init__(self, most: int = MAX_BUFFERED_CHANGES) -> None:
        self._max_changes = most
        self._buffered: list[tuple[int, int, Held]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._buffered)

    def add(self, offset: int, thing: Held) -> bool:
        """False when it is one too many: then nothing is held any more."""
        self._arrivals += 1
        heappush(self._buffered, (offset, self._arrivals, thing))
        if len(self._buffered) <= self._max_changes:
            return True
        self._buffered.clear()
        return False

    def release_up_to(self, upto: int) -> list[Held]:
        """Everything up to an offset, in the order of offsets."""
        found: list[Held] = []
        while self._buffered and self._buffered[0][0] <= upto:
            found.append(heappop(self._buffered)[2])
        return found
