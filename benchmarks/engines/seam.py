"""The interface of every contender, and the people and friendships that all of them contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

__all__ = ["EDGES", "Engine", "Network", "check_same", "name_of", "rank_of"]

EDGES = {"knows": 5, "follows": 10}
"""Edge types, and the number of edges of each person that has any: two hops reach 25 and 100 others."""


def name_of(key: int) -> str:
    return f"person {key}"


def rank_of(key: int) -> int:
    return key % 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """People with friends: from everyone who has edges of a type, two hops reach exactly fan-out² different people.

    Nodes and edges are listed in a shuffled order, so that neighbours do not lie side by side in memory.
    """

    keys: Sequence[int]
    edges: dict[str, list[tuple[int, int]]]

    @classmethod
    def of_size(cls, edges: int) -> Network:
        """About `edges` edges, half of each type."""
        chance = Random(7)
        lists = {}
        for name, fan_out in EDGES.items():
            people = max(fan_out * fan_out * 2, edges // 2 // fan_out)
            pairs = [(a, (a * fan_out + n + 1) % people) for a in range(people) for n in range(fan_out)]
            chance.shuffle(pairs)
            lists[name] = pairs
        keys = list(range(max(a for pairs in lists.values() for a, _ in pairs) + 1))
        chance.shuffle(keys)
        return cls(keys=keys, edges=lists)

    def people_with(self, edge: str) -> int:
        return len(self.edges[edge]) // EDGES[edge]


class Engine(Protocol):
    """A database with people (key, name, rank; found by key and by name) and edges between them."""

    def insert(self, first: int, count: int) -> None:
        """Add people one by one, each in a transaction of its own, with parameters where the engine has them."""
        ...

    def fill(self, network: Network) -> None:
        """Add a network in the fastest way; not measured."""
        ...

    def find(self, keys: Sequence[int]) -> int:
        """Look up people by name, one by one, and return the sum of their ranks."""
        ...

    def find_inline(self, keys: Sequence[int]) -> int:
        """The same with the name written into the statement."""
        ...

    def walk(self, edge: str, keys: Sequence[int]) -> int:
        """Follow two edges from each person and return the number of names reached."""
        ...

    def close(self) -> None: ...


def check_same(found: int, expected: int) -> None:
    """A contender with another result does not do the same work."""
    if found != expected:
        raise ValueError(f"the answer is {found}, expected {expected}")
