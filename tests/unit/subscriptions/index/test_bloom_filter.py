"""The Bloom filter of a segment."""

from __future__ import annotations

import numpy as np

from vedette.subscriptions.index.bloom_filter import build_bloom, may_contain
from vedette.subscriptions.index.columns import splitmix64

HASHES = splitmix64(np.arange(20_000, dtype=np.uint64))


def test_every_added_hash_is_found():
    assert may_contain(build_bloom(HASHES[:10_000]), HASHES[:10_000]).all()


def test_false_positive_rate_is_below_two_percent():
    assert may_contain(build_bloom(HASHES[:10_000]), HASHES[10_000:]).mean() < 0.02


def test_empty_filter_contains_nothing():
    assert not may_contain(build_bloom(HASHES[:0]), HASHES[:100]).any()
