"""`ordering: causal` over all partitions: an event is held back until every partition has passed its position. Pure.

Within a partition changes come in order; partitions go at their own pace. What a change caused stands later in the
journal, perhaps in another partition. So for a causal watch the order of the journal is kept: what arrives is held
until the end of a batch says that everything up to some offset was told, of idle partitions too
(`ingest_desk.Reached`), and is then handed on in the order of offsets.

Each watch has a hold of its own: the end of a batch that did not know the watch yet says nothing about what the watch
is told of the past.

What is held is bounded. When a watch would hold more, it must begin anew: a causal order with a hole is none.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

__all__ = ["MOST_HELD", "CausalHold"]

MOST_HELD = 10_000
"""Changes that one hold keeps back."""

Held = TypeVar("Held")


class CausalHold(Generic[Held]):
    """`keep` what arrives, each thing once; `release` when a batch that knew the watch is complete."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._most = most
        self._held: list[tuple[int, int, Held]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, offset: int, thing: Held) -> bool:
        """False when it is one too many: then nothing is held any more."""
        self._arrivals += 1
        heappush(self._held, (offset, self._arrivals, thing))
        if len(self._held) <= self._most:
            return True
        self._held.clear()
        return False

    def release(self, upto: int) -> list[Held]:
        """Everything up to an offset, in the order of offsets."""
        found: list[Held] = []
        while self._held and self._held[0][0] <= upto:
            found.append(heappop(self._held)[2])
        return found
