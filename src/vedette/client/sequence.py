"""The chain of a subscription's events: a hole is impossible to miss. No I/O."""

from __future__ import annotations

from enum import Enum
from typing import Any

__all__ = ["SequenceCheck", "SequenceTracker"]


class SequenceCheck(Enum):
    """What an event is to those that came before it."""

    NEXT = "next"
    DUPLICATE = "repeat"
    """It was here already: at least once is what was promised."""
    GAP = "hole"
    """Something between it and the last one never came."""


class SequenceTracker:
    """Each event names the seq before it, per partition."""

    __slots__ = ("seqs",)

    def __init__(self) -> None:
        self.seqs: dict[int, int] = {}
        """Partition ▸ the last seq that arrived."""

    def start_at(self, partition: int, seq: int) -> None:
        """A snapshot stands here: the chain begins anew."""
        self.seqs[partition] = seq

    def check(self, event: dict[str, Any]) -> SequenceCheck:
        """Look at the payload of an `event` message; only a NEXT one moves the chain on."""
        partition, seq, before = int(event["partition"]), int(event["seq"]), event.get("prevSeq")
        last = self.seqs.get(partition)
        if before is None or last is None:
            self.seqs[partition] = seq
            return SequenceCheck.NEXT
        if seq <= last:
            return SequenceCheck.DUPLICATE
        if before > last:
            return SequenceCheck.GAP
        self.seqs[partition] = seq
        return SequenceCheck.NEXT
