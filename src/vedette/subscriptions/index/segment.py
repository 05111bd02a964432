"""One immutable piece of the index of a collection: open it, and find candidates for changes.

Rows are subscriptions, grouped by shape. A *signature* is a set of fields that form a composite key, with an
optional range field. Its keys are sorted by (hash, bound), and a hash table maps a hash to its range of keys. A
look-up hashes the fields of all documents of a batch at once, asks the Bloom filter, then the hash table. The result
is a set of candidates: hashes collide, and a key covers only a part of a filter.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vedette.subscriptions.index.array_file import ArrayFile, open_array_file
from vedette.subscriptions.index.bloom_filter import may_contain
from vedette.subscriptions.index.change_batch import ImageBatch
from vedette.subscriptions.index.columns import Column, Ints
from vedette.subscriptions.index.hash_table import HashTable
from vedette.subscriptions.index.key_signature import KeySignature, combine_hashes, sortable_bounds
from vedette.subscriptions.shape import Shape
from vedette.subscriptions.spec import shape_of_spec

__all__ = ["Candidates", "Segment", "SegmentCache", "ShapeGroup", "worker_cache"]

_serials = count()


class Candidates(NamedTuple):
    """Pairs of an image and a subscription that may match, as parallel arrays. A pair may occur twice."""

    images: Ints
    """Rows of the image batch."""
    rows: Ints
    """Rows of the segment."""
    absent_keys: int
    """Number of looked-up keys that are not in the segment."""
    false_positives: int
    """Number of absent keys that the Bloom filter did not reject."""


class ShapeGroup(NamedTuple):
    """The rows of a segment that have one shape."""

    shape_index: int
    spec: bytes
    start: int

    @property
    def shape(self) -> Shape:
        return shape_of_spec(self.spec)


class Segment:
    """An opened segment. Its arrays are views of the memory-mapped file."""

    def __init__(self, arrays: ArrayFile) -> None:
        self._file = arrays
        self.serial = next(_serials)
        """Unique among the segments that this process has opened."""
        self.numbers: Ints = arrays.array("numbers")
        self.gateways: npt.NDArray[np.int32] = arrays.array("gateways")
        self.boundaries: Ints = arrays.array("boundaries")
        self.flags: npt.NDArray[np.uint8] = arrays.array("flags")
        self.added: Ints = arrays.array("added")
        self.shapes = [
            ShapeGroup(index, entry["spec"].encode(), entry["start"])
            for index, entry in enumerate(arrays.metadata["shapes"])
        ]
        self.signatures = [
            KeySignature(
                tuple(map(tuple, paths)), tuple(bound) if bound is not None else None, is_lower_bound
            )
            for paths, bound, is_lower_bound in arrays.metadata["signatures"]
        ]
        self._tables = [self._table(f"k{index}.") for index in range(len(self.signatures))]
        self._salts = [signature.salt for signature in self.signatures]
        self._columns: dict[tuple[int, int], Column] = {}

    @classmethod
    def open(cls, path: Path) -> Segment:
        return worker_cache.get(path)

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def shape_starts(self) -> Ints:
        return np.array([rows.start for rows in self.shapes], np.int64)

    def constant(self, shape: int, slot: int) -> Column:
        """Return the constants of one slot of one shape. For lists, return the items of all rows."""
        column = self._columns.get((shape, slot))
        if column is None:
            column = self._columns[shape, slot] = self._read_column(f"s{shape}.c{slot}")
        return column

    def list_starts(self, shape: int, slot: int) -> Ints:
        return self._file.array(f"s{shape}.c{slot}.starts")

    def is_list(self, shape: int, slot: int) -> bool:
        return f"s{shape}.c{slot}.starts" in self._file.arrays

    def _read_column(self, name: str) -> Column:
        arrays = self._file.arrays
        kinds = arrays[f"{name}.kinds"]
        bits = arrays.get(f"{name}.bits")
        return Column(
            kinds,
            bits if bits is not None else np.zeros(len(kinds), np.int64),
            arrays.get(f"{name}.offsets", np.empty(0, np.int64)).astype(np.int64, copy=False),
            arrays.get(f"{name}.data", np.empty(0, np.uint8)),
        )

    def _table(self, prefix: str) -> HashTable:
        arrays = {
            name.removeprefix(prefix): array
            for name, array in self._file.arrays.items()
            if name.startswith(prefix)
        }
        return HashTable(arrays)

    def find_candidates(self, images: ImageBatch) -> Candidates:
        """Return every pair that can match, and some that cannot. The exact filter decides."""
        found = [
            self._find_by_key(index, signature, images) for index, signature in enumerate(self.signatures)
        ]
        nothing = np.empty(0, np.int64)
        return Candidates(
            np.concatenate([nothing, *(part.images for part in found)]),
            np.concatenate([nothing, *(part.rows for part in found)]),
            sum(part.absent_keys for part in found),
            sum(part.false_positives for part in found),
        )

    def _find_by_key(self, index: int, signature: KeySignature, images: ImageBatch) -> Candidates:
        hashes, is_hashable = np.full(len(images), self._salts[index]), np.ones(len(images), np.bool_)
        for path in signature.paths:
            column = images.field(path)
            hashes, is_hashable = combine_hashes(hashes, column), is_hashable & column.is_hashable
        chosen = np.flatnonzero(is_hashable)
        uses_bloom = bool(signature.paths) and not signature.is_document_key
        asked = len(chosen)
        if uses_bloom:
            chosen = chosen[may_contain(self._file.array("bloom"), hashes[chosen])]
        low, high = self._tables[index].find_ranges(hashes[chosen])
        false_positives = int(np.count_nonzero(low == high)) if uses_bloom else 0
        absent = asked - len(chosen) + false_positives if uses_bloom else 0
        if signature.range_path is not None:
            low, high = self._narrow_by_bound(
                index, signature, images.field(signature.range_path), chosen, low, high
            )
        counts = np.maximum(high - low, 0)
        position = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self._file.array(f"k{index}.row")[np.repeat(low, counts) + position]
        return Candidates(np.repeat(chosen, counts), rows.astype(np.int64), absent, false_positives)

    def _narrow_by_bound(
        self, index: int, signature: KeySignature, column: Column, chosen: Ints, low: Ints, high: Ints
    ) -> tuple[Ints, Ints]:
        """Narrow each range of equal hashes to the keys whose bound the document's value meets."""
        bounds = self._file.array(f"k{index}.bound")
        values, comparable = sortable_bounds(column.take(chosen), signature.is_lower_bound)
        edge = bisect_within(bounds, values, low, high, right=signature.is_lower_bound)
        if signature.is_lower_bound:
            return np.where(comparable, low, 0), np.where(comparable, edge, 0)
        return np.where(comparable, edge, 0), np.where(comparable, high, 0)


def bisect_within(
    bounds: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
    low: Ints,
    high: Ints,
    *,
    right: bool,
) -> Ints:
    """Bisect each value in its own range low:high of the bounds, all values at once."""
    low, high = low.copy(), high.copy()
    while (unfinished := low < high).any():
        middle = np.where(unfinished, (low + high) // 2, 0)
        at = bounds[middle]
        before = (at <= values) if right else (at < values)
        low = np.where(unfinished & before, middle + 1, low)
        high = np.where(unfinished & ~before, middle, high)
    return low


class SegmentCache:
    """Keeps recently used segments mapped, up to a total size. Not thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._segments: OrderedDict[Path, tuple[Segment, int]] = OrderedDict()
        self.bytes = 0

    def get(self, path: Path) -> Segment:
        """Return the segment of a file. Unmaps the least recently used others if the total is too large."""
        cached = self._segments.get(path)
        if cached is None:
            cached = self._segments[path] = Segment(open_array_file(path)), path.stat().st_size
            self.bytes += cached[1]
        self._segments.move_to_end(path)
        while self.bytes > self.max_bytes and len(self._segments) > 1:
            _, (_, size) = self._segments.popitem(last=False)
            self.bytes -= size
        return cached[0]


worker_cache = SegmentCache(1 << 30)
"""Segments of this process. A Spark worker sets `max_bytes` from its configuration."""
