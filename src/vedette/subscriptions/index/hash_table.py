"""Where the keys with a hash stand among very many, for many hashes at once.

Keys are sorted by hash, and several may have one. Kept are the different hashes (`hash`) and where the keys of each
begin (`first`); of a large table also, for every beginning of a hash, where the hashes that begin so begin (`start`),
with as many bits as make one or two hashes to a beginning. A binary search in a large table waits for memory a dozen
times, one wait after the other; this way it is two waits, and those of many hashes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vedette.subscriptions.index.columns import Ints, UInts

__all__ = ["HashTable", "build_hash_table"]

PREFIX_TABLE_MIN_HASHES = 4_096
"""From so many hashes on they are found by their beginnings."""
LINEAR_PROBES = 3
"""So many neighbours are looked at; a hash that stands further back is searched for."""


def build_hash_table(hashes: UInts) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a table of sorted hashes."""
    different, first = np.unique(hashes, return_index=True)
    arrays: dict[str, npt.NDArray[Any]] = {
        "hash": different,
        "first": np.append(first, len(hashes)).astype(np.uint32),
    }
    if len(different) >= PREFIX_TABLE_MIN_HASHES:
        bits = len(different).bit_length() - 1
        beginnings = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
        arrays["start"] = np.searchsorted(different, beginnings).astype(np.uint32)
    return arrays


class HashTable:
    """An opened table; its arrays are views of a file."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._hash: UInts = arrays["hash"]
        self._first: npt.NDArray[np.uint32] = arrays["first"]
        self._start: npt.NDArray[np.uint32] | None = arrays.get("start")
        self._last = len(self._hash) - 1

    def find_ranges(self, hashes: UInts) -> tuple[Ints, Ints]:
        """For each hash the keys low:high that have it; low is high where none has."""
        if self._last < 0:
            nowhere = np.zeros(len(hashes), np.int64)
            return nowhere, nowhere
        places = self._search(hashes) if self._start is None else self._find_by_prefix(self._start, hashes)
        low = self._first[places].astype(np.int64)
        return low, np.where(self._hash[places] == hashes, self._first[places + 1], low)

    def _search(self, hashes: UInts) -> Ints:
        """The place of each hash or, where it is not there, any place."""
        return np.minimum(np.searchsorted(self._hash, hashes), self._last)

    def _find_by_prefix(self, start: npt.NDArray[np.uint32], hashes: UInts) -> Ints:
        """The same, by their beginnings."""
        shift = np.uint64(65 - len(start).bit_length())
        places = np.minimum(start[hashes >> shift], self._last).astype(np.int64)
        behind = np.flatnonzero(self._hash[places] < hashes)
        for _ in range(LINEAR_PROBES):
            behind = behind[places[behind] < self._last]
            places[behind] += 1
            behind = behind[self._hash[places[behind]] < hashes[behind]]
        if len(behind):
            places[behind] = self._search(hashes[behind])
        return places
