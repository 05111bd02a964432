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
        """For each hash the range low:high of its keys; empty if it is absent."""
        if self._last < 0:
            nowhere = np.zeros(len(hashes), np.int64)
            return nowhere, nowhere
        places = self._search(hashes) if self._start is None else self._find_by_prefix(self._start, hashes)
        low = self._first[places].astype(np.int64)
        return low, np.where(self._hash[places] == hashes, self._first[places + 1], low)

    def _search(self, hashes: UInts) -> Ints:
        """The position of each hash, or any position if it is absent."""
        return np.minimum(np.searchsorted(self._hash, hashes), self._last)

    def _find_by_prefix(self, start: npt.NDArray[np.uint32], hashes: UInts) -> Ints:
        """The same with the prefix table."""
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
