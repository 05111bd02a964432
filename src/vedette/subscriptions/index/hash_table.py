"""Map hashes to ranges of sorted keys, for many hashes at once.

Keys are sorted by hash, and several may share one. The table has the distinct hashes (`hash`) and the first key of
each (`first`). A large table also has, for every hash prefix, the first hash with it (`start`), with enough bits for
one or two hashes per prefix. A binary search in a large table waits for memory a dozen times in sequence; this lookup
waits twice, for many hashes in parallel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vedette.subscriptions.index.columns import Ints, UInts

__all__ = ["HashTable", "build_hash_table"]

PREFIX_TABLE_MIN_HASHES = 4_096
"""Number of hashes from which the prefix table is used."""
LINEAR_PROBES = 3
"""Neighbours that are compared directly; a hash further away is found by binary search."""


def build_hash_table(hashes: UInts) -> dict[str, npt.NDArray[Any]]:
    """Build the arrays of a table from sorted hashes."""
    distinct, first = np.unique(hashes, return_index=True)
    arrays: dict[str, npt.NDArray[Any]] = {
        "hash": distinct,
        "first": np.append(first, len(hashes)).astype(np.uint32),
    }
    if len(distinct) >= PREFIX_TABLE_MIN_HASHES:
        bits = len(distinct).bit_length() - 1
        prefixes = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
        arrays["start"] = np.searchsorted(distinct, prefixes).astype(np.uint32)
    return arrays


class HashTable:
    """An opened table; its arrays are views of a file."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._hash: UInts = arrays["hash"]
        self._first: npt.NDArray[np.uint32] = arrays["first"]
        self._start: npt.NDArray[np.uint32] | None = arrays.get("start")
        self._last = len(self._hash) - 1

    def find_ranges(self, hashes: UInts) -> tuple[Ints, Ints]:
        """Return for each hash the range low:high of its keys. The range of an absent hash is empty."""
        if self._last < 0:
            empty = np.zeros(len(hashes), np.int64)
            return empty, empty
        positions = self._search(hashes) if self._start is None else self._find_by_prefix(self._start, hashes)
        low = self._first[positions].astype(np.int64)
        return low, np.where(self._hash[positions] == hashes, self._first[positions + 1], low)

    def _search(self, hashes: UInts) -> Ints:
        """Return the position of each hash by binary search; any position for an absent hash."""
        return np.minimum(np.searchsorted(self._hash, hashes), self._last)

    def _find_by_prefix(self, start: npt.NDArray[np.uint32], hashes: UInts) -> Ints:
        """Return the same positions with the prefix table."""
        shift = np.uint64(65 - len(start).bit_length())
        positions = np.minimum(start[hashes >> shift], self._last).astype(np.int64)
        behind = np.flatnonzero(self._hash[positions] < hashes)
        for _ in range(LINEAR_PROBES):
            behind = behind[positions[behind] < self._last]
            positions[behind] += 1
            behind = behind[self._hash[positions[behind]] < hashes[behind]]
        if len(behind):
            positions[behind] = self._search(hashes[behind])
        return positions
