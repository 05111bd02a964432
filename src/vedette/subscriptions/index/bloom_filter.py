"""A segmented Bloom filter over hashes: k segments of bits, one bit per key in each.

With 10 bits per key and 7 segments the false-positive rate is about 0.8 %. Bit positions come from two independent
halves of one mixed hash, because equal halves would degenerate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vedette.subscriptions.index.columns import Bools, UInts, splitmix64

__all__ = ["BITS_PER_KEY", "SEGMENTS", "build_bloom", "may_contain"]

BITS_PER_KEY = 10
SEGMENTS = 7


def build_bloom(hashes: UInts) -> npt.NDArray[np.uint8]:
    """Build the filter of these hashes: one row of bytes per segment."""
    bits = max(64, -(-len(hashes) * BITS_PER_KEY // SEGMENTS))
    filled = np.zeros((SEGMENTS, -(-bits // 8)), np.uint8)
    for segment, places in enumerate(_places(hashes, filled.shape[1] * 8)):
        np.bitwise_or.at(filled[segment], places >> np.uint64(3), _bit(places))
    return filled


def may_contain(bloom: npt.NDArray[np.uint8], hashes: UInts) -> Bools:
    """False only if a hash is certainly not in the filter."""
    found = np.ones(len(hashes), np.bool_)
    for segment, places in enumerate(_places(hashes, bloom.shape[1] * 8)):
        found &= (bloom[segment][places >> np.uint64(3)] & _bit(places)) != 0
    return found


def _bit(places: UInts) -> npt.NDArray[np.uint8]:
    return np.uint8(1) << (places & np.uint64(7)).astype(np.uint8)


def _places(hashes: UInts, bits: int) -> list[UInts]:
    """Double hashing; the step is odd, so that it visits all positions."""
    first = splitmix64(hashes)
    second = splitmix64(hashes ^ np.uint64(0xD6E8FEB86659FD93)) | np.uint64(1)
    with np.errstate(over="ignore"):
        return [(first + np.uint64(k) * second) % np.uint64(bits) for k in range(SEGMENTS)]
