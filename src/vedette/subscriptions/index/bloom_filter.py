"""A segmented Bloom filter over hashes: k segments of bits, one bit per key in each.

With 10 bits per key and 7 segments the false-positive rate is about 0.8 %. Bit positions come from two independent
mixes of the hash; two dependent ones would set the same bits in all segments.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vedette.subscriptions.index.columns import Bools, UInts, splitmix64

__all__ = ["BITS_PER_KEY", "SEGMENTS", "build_bloom", "may_contain"]

BITS_PER_KEY = 10
SEGMENTS = 7


def build_bloom(hashes: UInts) -> npt.NDArray[np.uint8]:
    """Build the filter: one row of bytes per segment."""
    bits = max(64, -(-len(hashes) * BITS_PER_KEY // SEGMENTS))
    bloom = np.zeros((SEGMENTS, -(-bits // 8)), np.uint8)
    for segment, positions in enumerate(_bit_positions(hashes, bloom.shape[1] * 8)):
        np.bitwise_or.at(bloom[segment], positions >> np.uint64(3), _bit(positions))
    return bloom


def may_contain(bloom: npt.NDArray[np.uint8], hashes: UInts) -> Bools:
    """False only if a hash is certainly not in the filter."""
    found = np.ones(len(hashes), np.bool_)
    for segment, positions in enumerate(_bit_positions(hashes, bloom.shape[1] * 8)):
        found &= (bloom[segment][positions >> np.uint64(3)] & _bit(positions)) != 0
    return found


def _bit(positions: UInts) -> npt.NDArray[np.uint8]:
    return np.uint8(1) << (positions & np.uint64(7)).astype(np.uint8)


def _bit_positions(hashes: UInts, bits: int) -> list[UInts]:
    """Return one position per hash and segment, by double hashing. The odd step spreads them over all positions."""
    first = splitmix64(hashes)
    second = splitmix64(hashes ^ np.uint64(0xD6E8FEB86659FD93)) | np.uint64(1)
    with np.errstate(over="ignore"):
        return [(first + np.uint64(k) * second) % np.uint64(bits) for k in range(SEGMENTS)]
