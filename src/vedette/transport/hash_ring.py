"""A consistent-hash ring: which gateways get a change unfiltered while the index is unsure of itself.

Each gateway stands at many points of a circle of hashes; a key belongs to the first gateway at or after its own hash.
When one joins or leaves, only the keys between it and its neighbours move.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

from vedette.hashing import text_hash

__all__ = ["POINTS_PER_MEMBER", "HashRing"]

POINTS_PER_MEMBER = 64
"""Places of one gateway on the circle: the shares differ by about an eighth."""


class HashRing:
    """Immutable; a change of members makes another."""

    def __init__(self, members: Iterable[str] = ()) -> None:
        self.members = tuple(sorted(set(members)))

    @cached_property
    def _points(self) -> tuple[list[int], list[str]]:
        points = sorted(
            (text_hash(f"{member}#{point}"), member)
            for member in self.members
            for point in range(POINTS_PER_MEMBER)
        )
        return [place for place, _ in points], [member for _, member in points]

    def owners(self, key: str, count: int = 1) -> list[str]:
        """The owner of a key, then those who would be it if the ones before were not there."""
        places, members = self._points
        found: list[str] = []
        start = bisect_left(places, text_hash(key)) if places else 0
        for step in range(len(members)):
            member = members[(start + step) % len(members)]
            if member not in found:
                found.append(member)
                if len(found) == count:
                    break
        return found

    def owner(self, key: str) -> str | None:
        return next(iter(self.owners(key)), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashRing) and self.members == other.members

    def __hash__(self) -> int:
        return hash(self.members)
