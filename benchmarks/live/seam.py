"""What every contender with live queries can do, and the changes that they are all told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["HIGH", "Change", "Live", "Pattern", "Workload"]

Pattern = Literal["filter", "hop", "keys"]
"""filter: people with a high rank. hop: the same, with somebody they know. keys: each watch has one person's key."""

HIGH = 50
"""Ranks above it are high."""

Change = tuple[int, int]
"""Whose rank, and what it becomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """People in a ring, each knowing the next, and watches over them. Every change means one event for one watch."""

    pattern: Pattern
    people: int = 1_000
    watches: int = 1
    """Of `keys`: watch n is for the person with key n."""

    def first_ranks(self) -> list[int]:
        """The rank of each person before the first change."""
        return [self._rank(key, -1) for key in range(self.people)]

    def changes(self, first: int, count: int) -> list[Change]:
        """The changes with these numbers: they go round and round, and each moves a person into the filter or out."""
        return [
            (number % self.people, self._rank(number % self.people, number // self.people))
            for number in range(first, first + count)
        ]

    def _rank(self, key: int, lap: int) -> int:
        if self.pattern == "keys":
            return lap + 1
        return 100 if (key + lap) % 2 else 0


class Live(Protocol):
    """A database that is told changes and tells watches."""

    def change(self, changes: Sequence[Change]) -> int:
        """Make the changes, each a transaction of its own; returns when all events have arrived, with their number."""
        ...

    def close(self) -> None: ...
