"""Detects gaps and duplicates in the events of a subscription. No I/O."""

from __future__ import annotations

from enum import Enum
from typing import Any

__all__ = ["SequenceCheck", "SequenceTracker"]


class SequenceCheck(Enum):
    """How an event relates to the events before it."""

    NEXT = "next"
    DUPLICATE = "repeat"
    """Already received; delivery is at least once."""
    GAP = "hole"
    """An event between it and the last one is missing."""


class SequenceTracker:
    """Tracks the last seq per partition. Each event names the seq before it."""

    __slots__ = ("seqs",)

    def __init__(self) -> None:
        self.seqs: dict[int, int] = {}
        """Partition ▸ last seq received."""

    def start_at(self, partition: int, seq: int) -> None:
        """Start a new chain at the seq of a snapshot."""
        self.seqs[partition] = seq

    def check(self, event: dict[str, Any]) -> SequenceCheck:
        """Check the payload of an `event` message. Only NEXT advances the chain."""
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
