"""The interface of contenders with live queries, and the changes that all of them process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["HIGH", "Change", "Live", "Pattern", "Workload"]

Pattern = Literal["filter", "hop", "keys"]
"""filter: people with a high rank. hop: the same with an acquaintance. keys: each watch has the key of one person."""

HIGH = 50
"""Ranks above this value are high."""

Change = tuple[int, int]
"""The key of a person and the new rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """People in a ring, each knowing the next, and watches over them. Every change means one event for one watch."""

    pattern: Pattern
    people: int = 1_000
    watches: int = 1
    """For `keys`: watch n is about the person with key n."""

    def first_ranks(self) -> list[int]:
        """The rank of each person before the first change."""
        return [self._rank(key, -1) for key in range(self.people)]

    def changes(self, first: int, count: int) -> list[Change]:
        """Return the changes with these numbers.

        They cycle through the people; each moves a person into or out of the filter.
        """
        return [
            (number % self.people, self._rank(number % self.people, number // self.people))
            for number in range(first, first + count)
        ]

    def _rank(self, key: int, lap: int) -> int:
        if self.pattern == "keys":
            return lap + 1
        return 100 if (key + lap) % 2 else 0


class Live(Protocol):
    """A database that applies changes and sends events of watches."""

    def change(self, changes: Sequence[Change]) -> int:
        """Apply the changes, each in its own transaction. Return the number of events when all have arrived."""
        ...

    def close(self) -> None: ...
