"""The hash table compared with a linear search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.subscriptions.index.columns import UInts
from vedette.subscriptions.index.hash_table import HashTable, build_hash_table

MOST = 2**64 - 1
SIZES = [0, 1, 2, 60, 4_095, 4_096, 4_097, 30_000]


@pytest.mark.parametrize("size", SIZES)
@given(seed=st.integers(0, 1 << 32), repeats=st.sampled_from([1, 3, 500]), alike=st.sampled_from([0, 30, 52]))
def test_ranges_equal_those_of_a_linear_search(size: int, seed: int, repeats: int, alike: int) -> None:
    """`alike` is the number of equal first bits, as with keys that an attacker chooses."""
    rng = np.random.default_rng(seed)
    kept = rng.integers(0, MOST, max(1, size // repeats), np.uint64, endpoint=True) >> np.uint64(alike)
    hashes = np.sort(kept[rng.integers(0, len(kept), size)])
    table = HashTable(build_hash_table(hashes))
    edges = np.array([0, 1, MOST - 1, MOST], np.uint64)
    near = kept[:200]
    with np.errstate(over="ignore"):
        asked = np.concatenate([edges, kept[-500:], near + np.uint64(1), near - np.uint64(1)])
    _check(table, hashes, asked)


def test_only_a_large_table_has_prefixes() -> None:
    assert "start" in build_hash_table(np.arange(5_000, dtype=np.uint64))
    assert "start" not in build_hash_table(np.arange(4_000, dtype=np.uint64))


def test_hash_after_many_with_the_same_prefix_is_found() -> None:
    """All hashes have one prefix, and there are more than LINEAR_PROBES."""
    hashes = np.arange(10_000, dtype=np.uint64)
    _check(HashTable(build_hash_table(hashes)), hashes, np.arange(9_000, 11_000, dtype=np.uint64))


def _check(table: HashTable, hashes: UInts, asked: UInts) -> None:
    low, high = table.find_ranges(asked)
    first, last = np.searchsorted(hashes, asked, "left"), np.searchsorted(hashes, asked, "right")
    assert np.array_equal(high - low, last - first)
    there = first < last
    assert np.array_equal(low[there], first[there])
