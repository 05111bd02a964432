"""`ordering: causal` over all partitions: an event is held back until every partition has passed its position. Pure.

Within a partition changes come in order; partitions go at their own pace. What a change caused stands later in the
journal, perhaps in another partition. So for a causal watch the order of the journal is kept: what arrives is held
until the end of a batch says that everything up to some offset was told, of idle partitions too
(`ingest_desk.Reached`), and is then handed on in the order of offsets.

What is held is bounded. When a watch would hold more, it must begin anew: a causal order with a hole is none.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from vedette.pipeline.ingest_desk import Reached, Resync, Told, Unfiltered
from vedette.pipeline.ingest_frames import PartitionStatus, WindowTold

__all__ = ["MOST_HELD", "CausalHold", "HeldTooMuch"]

MOST_HELD = 10_000
"""Changes that one hold keeps back."""


class HeldTooMuch(NamedTuple):
    """Everything that was held is let go of: whoever wanted it in order must begin anew."""

    held: int


Held: TypeAlias = Told | Unfiltered
Passing: TypeAlias = Held | Resync | Reached | PartitionStatus | WindowTold


class CausalHold:
    """One for all causal watches of a gateway, or for one of them. `take` what the desk puts out, in its order."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._most = most
        self._held: list[tuple[int, int, Held]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._held)

    def take(self, output: Passing) -> list[Held | Resync | HeldTooMuch]:
        """What may be handed on now, in causal order."""
        match output:
            case Reached(offset=offset):
                return self._released(offset)
            case Resync(partition=partition, epoch=epoch):
                self._forget(partition, epoch)
                return [output]
            case PartitionStatus() | WindowTold():
                return []
            case _:
                self._arrivals += 1
                heappush(self._held, (output.change.offset, self._arrivals, output))
                return self._overflow() if len(self._held) > self._most else []

    def _released(self, offset: int) -> list[Held | Resync | HeldTooMuch]:
        found: list[Held | Resync | HeldTooMuch] = []
        while self._held and self._held[0][0] <= offset:
            found.append(heappop(self._held)[2])
        return found

    def _forget(self, partition: int, epoch: int) -> None:
        """What was held of before the loss joins nothing any more."""
        kept = [
            each
            for each in self._held
            if each[2].change.partition != partition or each[2].change.epoch >= epoch
        ]
        self._held = sorted(kept, key=lambda each: each[:2])

    def _overflow(self) -> list[Held | Resync | HeldTooMuch]:
        held = len(self._held)
        self._held = []
        return [HeldTooMuch(held)]
