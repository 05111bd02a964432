"""Consistent-hash ring: selects the gateways that get a change unfiltered while the index is not reliable.

Each gateway has many points on a circle of hashes. A key belongs to the first gateway at or after its hash. When a
gateway joins or leaves, only the keys next to its points move.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

from vedette.hashing import text_hash

__all__ = ["POINTS_PER_MEMBER", "HashRing"]

POINTS_PER_MEMBER = 64
"""Points per gateway. With 64 the shares differ by about an eighth."""


class HashRing:
    """Immutable; a change of members creates a new ring."""

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
        """Return the owner of a key, followed by the owners that would replace it, in order."""
        hashes, members = self._points
        found: list[str] = []
        start = bisect_left(hashes, text_hash(key)) if hashes else 0
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
