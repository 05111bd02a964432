"""The chain of a subscription's events: a hole is impossible to miss. No I/O."""

from __future__ import annotations

from enum import Enum
from typing import Any

__all__ = ["Chain", "Link"]


class Link(Enum):
    """What an event is to those that came before it."""

    NEXT = "next"
    REPEAT = "repeat"
    """It was here already: at least once is what was promised."""
    HOLE = "hole"
    """Something between it and the last one never came."""


class Chain:
    """Each event names the seq before it, per partition."""

    __slots__ = ("seqs",)

    def __init__(self) -> None:
        self.seqs: dict[int, int] = {}
        """Partition ▸ the last seq that arrived."""

    def begin(self, partition: int, seq: int) -> None:
        """A snapshot stands here: the chain begins anew."""
        self.seqs[partition] = seq

    def follow(self, event: dict[str, Any]) -> Link:
        """Look at the payload of an `event` message; only a NEXT one moves the chain on."""
        partition, seq, before = int(event["partition"]), int(event["seq"]), event.get("prevSeq")
        last = self.seqs.get(partition)
        if before is None or last is None:
            self.seqs[partition] = seq
            return Link.NEXT
        if seq <= last:
            return Link.REPEAT
        if before > last:
            return Link.HOLE
        self.seqs[partition] = seq
        return Link.NEXT
