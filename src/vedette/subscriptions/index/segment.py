"""One immutable piece of the index of a collection: subscriptions, their constants by shape, their keys.

Rows are subscriptions, grouped by shape. For each *signature*, the fields of a composite key and the direction of its
range, there are `bound` and `row` sorted by (hash, bound), and a table from hashes to row ranges (`hash_table.py`).
A look-up hashes the same fields of all documents at once, asks the Bloom filter, and then the table; what it finds are
candidates, never answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vedette.language.syntax.canonical import canonical_text
from vedette.subscriptions.index.array_file import Blocks, open_blocks, write_blocks
from vedette.subscriptions.index.bloom_filter import build_bloom, may_contain
from vedette.subscriptions.index.change_batch import ImageBatch
from vedette.subscriptions.index.columns import (
    DURATION,
    INT,
    TEXT,
    Bools,
    Column,
    Ints,
    UInts,
    build_column,
    splitmix64,
)
from vedette.subscriptions.index.hash_table import HashTable, build_hash_table
from vedette.subscriptions.required_keys import KeyAlternative, key_alternatives
from vedette.subscriptions.shape import Constant, FieldPath, ListSlot, Shape, Slot
from vedette.subscriptions.spec import shape_of_spec

__all__ = [
    "LOW_PRIORITY",
    "Candidates",
    "Segment",
    "SegmentCache",
    "SegmentEntry",
    "ShapeGroup",
    "worker_cache",
    "write_segment",
]

_serials = count()

LOW_PRIORITY = 1
"""A flag of a subscription: it is paused first when gateways are full."""


class SegmentEntry(NamedTuple):
    """A subscription on its way into a segment."""

    number: int
    gateway: int
    boundary: int
    """Only changes with a greater offset concern it."""
    flags: int
    spec: bytes
    """An example of its shape: the JSON of a SubscriptionSpec with any constants."""
    constants: tuple[Constant, ...]
    added: int = 0
    """The version of the registry that it came with."""


class Signature(NamedTuple):
    """What a composite key is made of."""

    paths: tuple[FieldPath, ...]
    range_path: FieldPath | None = None
    rising: bool = True

    @property
    def fast(self) -> bool:
        """The document's own key: looked up without the Bloom filter."""
        return self.paths == (("id",),)

    @property
    def salt(self) -> np.uint64:
        text = canonical_text(("key", self.paths, self.range_path, self.rising))
        return splitmix64(build_column([text]).hashes)[0]


# --- building ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _KeyEntries:
    """What stands under one signature, while a segment is made."""

    hashes: list[UInts]
    bounds: list[npt.NDArray[np.float64]]
    rows: list[Ints]


def write_segment(path: Path, entries: Sequence[SegmentEntry]) -> int:
    """Write the subscriptions as a segment and return the size of its file in bytes."""
    shapes: dict[str, list[SegmentEntry]] = {}
    for entry in entries:
        shapes.setdefault(shape_of_spec(entry.spec).fingerprint, []).append(entry)
    ordered = [entry for group in shapes.values() for entry in group]
    arrays: dict[str, npt.NDArray[Any]] = {
        "numbers": np.array([entry.number for entry in ordered], np.int64),
        "gateways": np.array([entry.gateway for entry in ordered], np.int32),
        "boundaries": np.array([entry.boundary for entry in ordered], np.int64),
        "flags": np.array([entry.flags for entry in ordered], np.uint8),
        "added": np.array([entry.added for entry in ordered], np.int64),
    }
    keys: dict[Signature, _KeyEntries] = {}
    facts, start = [], 0
    for place, group in enumerate(shapes.values()):
        shape = shape_of_spec(group[0].spec)
        columns = _constant_columns(shape, [entry.constants for entry in group])
        for index, column in columns.items():
            arrays |= _column_arrays(f"s{place}.c{index}", column)
        for alternative in key_alternatives(shape):
            _add_keys(keys, alternative, columns, start, len(group))
        facts.append({"spec": group[0].spec.decode(), "start": start})
        start += len(group)
    signatures = _sorted_keys(keys, arrays)
    return write_blocks(path, {"shapes": facts, "signatures": signatures}, arrays)


class _Lists(NamedTuple):
    starts: Ints
    items: Column


def _constant_columns(shape: Shape, constants: Sequence[tuple[Constant, ...]]) -> dict[int, Column | _Lists]:
    columns: dict[int, Column | _Lists] = {}
    for index in range(shape.constants):
        values: list[Any] = [row[index] for row in constants]
        if values and isinstance(values[0], list):
            starts = np.cumsum([0, *map(len, values)])
            columns[index] = _Lists(starts, build_column([item for items in values for item in items]))
        else:
            columns[index] = build_column(values)
    return columns


def _column_arrays(name: str, column: Column | _Lists) -> dict[str, npt.NDArray[Any]]:
    if isinstance(column, _Lists):
        return {f"{name}.starts": column.starts, **_column_arrays(name, column.items)}
    arrays: dict[str, npt.NDArray[Any]] = {f"{name}.kinds": column.kinds}
    if column.bits.any():
        arrays[f"{name}.bits"] = column.bits
    if (column.kinds == TEXT).any():
        first, last = column.text_offsets[0], column.text_offsets[-1]
        offsets = column.text_offsets - first
        arrays[f"{name}.offsets"] = offsets.astype(np.uint32) if last - first < 2**32 else offsets
        arrays[f"{name}.data"] = column.text_data[first:last]
    return arrays


def _add_keys(
    keys: dict[Signature, _KeyEntries],
    alternative: KeyAlternative,
    columns: Mapping[int, Column | _Lists],
    start: int,
    count: int,
) -> None:
    """Enter all subscriptions of a shape under one of its alternatives."""
    bound = alternative.range
    signature = Signature(
        tuple(equality.path for equality in alternative.equalities),
        bound.path if bound is not None else None,
        bound.is_lower_bound if bound is not None else True,
    )
    rows: Ints = np.arange(count)
    for equality in alternative.equalities:  # one list at most: it says how many keys a row has
        if isinstance(equality.constant, ListSlot):
            lists = columns[equality.constant.index]
            assert isinstance(lists, _Lists)
            rows = np.repeat(np.arange(count), np.diff(lists.starts))
    hashes, keyed = np.full(len(rows), signature.salt), np.ones(len(rows), np.bool_)
    for equality in alternative.equalities:
        column = _equality_column(equality.constant, columns, rows)
        hashes, keyed = _combine_hashes(hashes, column), keyed & column.is_hashable
    bounds = np.zeros(len(rows))
    if bound is not None:
        bounds, fits = _sortable_bounds(_scalar(columns, bound.constant).take(rows), bound.is_lower_bound)
        keyed &= fits
    held = keys.setdefault(signature, _KeyEntries([], [], []))
    held.hashes.append(hashes[keyed])
    held.bounds.append(bounds[keyed])
    held.rows.append(rows[keyed] + start)


def _equality_column(
    constant: Slot | ListSlot | bool, columns: Mapping[int, Column | _Lists], rows: Ints
) -> Column:
    if isinstance(constant, bool):
        return build_column([True] * len(rows))
    column = columns[constant.index]
    return column.items if isinstance(column, _Lists) else column.take(rows)


def _scalar(columns: Mapping[int, Column | _Lists], slot: Slot) -> Column:
    column = columns[slot.index]
    assert isinstance(column, Column)
    return column


def _combine_hashes(hashes: UInts, column: Column) -> UInts:
    with np.errstate(over="ignore"):
        return splitmix64(hashes * np.uint64(0x9E3779B97F4A7C15) + column.hashes)


def _sortable_bounds(column: Column, rising: bool) -> tuple[npt.NDArray[np.float64], Bools]:
    """Where constants stand in the order, and which can be passed at all. Texts stand at the end that is always met."""
    never = (column.kinds < INT) | (
        column.kinds > DURATION
    )  # null, truth values, lists and maps have no order
    texts = column.kinds == TEXT
    bounds = np.where(texts, -np.inf if rising else np.inf, column.doubles)
    return bounds, ~(never | np.isnan(bounds))


def _sorted_keys(keys: Mapping[Signature, _KeyEntries], arrays: dict[str, npt.NDArray[Any]]) -> list[Any]:
    gated: list[UInts] = []
    signatures = []
    for place, (signature, held) in enumerate(keys.items()):
        hashes, bounds = np.concatenate(held.hashes), np.concatenate(held.bounds)
        order = np.lexsort((bounds, hashes))
        arrays |= {f"k{place}.{name}": array for name, array in build_hash_table(hashes[order]).items()}
        arrays[f"k{place}.row"] = np.concatenate(held.rows)[order].astype(np.uint32)
        if signature.range_path is not None:
            arrays[f"k{place}.bound"] = bounds[order]
        if signature.paths and not signature.fast:
            gated.append(np.unique(hashes))
        signatures.append([signature.paths, signature.range_path, signature.rising])
    if gated:
        arrays["bloom"] = build_bloom(np.concatenate(gated))
    return signatures


# --- looking up -------------------------------------------------------------------------------------------------


class Candidates(NamedTuple):
    """Candidates of a look-up: image rows beside rows of the segment, some perhaps twice; what the Bloom filter did."""

    images: Ints
    rows: Ints
    absent_keys: int
    """Keys that are not in the index."""
    false_positives: int
    """Of those, let through by the Bloom filter: its false positives."""


class ShapeGroup(NamedTuple):
    """The rows of a segment that have one shape."""

    shape_index: int
    spec: bytes
    start: int

    @property
    def shape(self) -> Shape:
        return shape_of_spec(self.spec)


class Segment:
    """An opened segment. Everything it holds is a view of the file."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.serial = next(_serials)
        """Tells it apart from all others that this process has opened."""
        self.numbers: Ints = blocks.array("numbers")
        self.gateways: npt.NDArray[np.int32] = blocks.array("gateways")
        self.boundaries: Ints = blocks.array("boundaries")
        self.flags: npt.NDArray[np.uint8] = blocks.array("flags")
        self.added: Ints = blocks.array("added")
        self.shapes = [
            ShapeGroup(place, fact["spec"].encode(), fact["start"])
            for place, fact in enumerate(blocks.facts["shapes"])
        ]
        self.signatures = [
            Signature(tuple(map(tuple, paths)), tuple(bound) if bound is not None else None, rising)
            for paths, bound, rising in blocks.facts["signatures"]
        ]
        self._tables = [self._table(f"k{place}.") for place in range(len(self.signatures))]
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

    def constant(self, place: int, index: int) -> Column:
        """The constants of one slot of one shape; of a list, all items end to end."""
        column = self._columns.get((place, index))
        if column is None:
            column = self._columns[place, index] = self._read_column(f"s{place}.c{index}")
        return column

    def list_starts(self, place: int, index: int) -> Ints:
        return self._blocks.array(f"s{place}.c{index}.starts")

    def is_list(self, place: int, index: int) -> bool:
        return f"s{place}.c{index}.starts" in self._blocks.arrays

    def _read_column(self, name: str) -> Column:
        arrays = self._blocks.arrays
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
            for name, array in self._blocks.arrays.items()
            if name.startswith(prefix)
        }
        # Before there were tables, `hash` had the hash of every key.
        return HashTable(arrays if "first" in arrays else build_hash_table(arrays["hash"]))

    def find_candidates(self, images: ImageBatch) -> Candidates:
        """Every subscription that can match an image, and some more."""
        found = [self._look_up(place, signature, images) for place, signature in enumerate(self.signatures)]
        nothing = np.empty(0, np.int64)
        return Candidates(
            np.concatenate([nothing, *(part.images for part in found)]),
            np.concatenate([nothing, *(part.rows for part in found)]),
            sum(part.absent_keys for part in found),
            sum(part.false_positives for part in found),
        )

    def _look_up(self, place: int, signature: Signature, images: ImageBatch) -> Candidates:
        hashes, keyed = np.full(len(images), self._salts[place]), np.ones(len(images), np.bool_)
        for path in signature.paths:
            column = images.field(path)
            hashes, keyed = _combine_hashes(hashes, column), keyed & column.is_hashable
        chosen = np.flatnonzero(keyed)
        gated = bool(signature.paths) and not signature.fast
        asked = len(chosen)
        if gated:
            chosen = chosen[may_contain(self._blocks.array("bloom"), hashes[chosen])]
        low, high = self._tables[place].find_ranges(hashes[chosen])
        passed = int(np.count_nonzero(low == high)) if gated else 0
        absent = asked - len(chosen) + passed if gated else 0
        if signature.range_path is not None:
            low, high = self._narrow_by_bound(
                place, signature, images.field(signature.range_path), chosen, low, high
            )
        counts = np.maximum(high - low, 0)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self._blocks.array(f"k{place}.row")[np.repeat(low, counts) + within]
        return Candidates(np.repeat(chosen, counts), rows.astype(np.int64), absent, passed)

    def _narrow_by_bound(
        self, place: int, signature: Signature, column: Column, chosen: Ints, low: Ints, high: Ints
    ) -> tuple[Ints, Ints]:
        """Narrow each stretch of equal hashes to the bounds that the document's value passes."""
        bounds = self._blocks.array(f"k{place}.bound")
        taken = column.take(chosen)
        values, orderable = _sortable_bounds(taken, signature.rising)
        edge = bisect_within(bounds, values, low, high, right=signature.rising)
        if signature.rising:
            return np.where(orderable, low, 0), np.where(orderable, edge, 0)
        return np.where(orderable, edge, 0), np.where(orderable, high, 0)


def bisect_within(
    bounds: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
    low: Ints,
    high: Ints,
    *,
    right: bool,
) -> Ints:
    """`bisect` of every value in its own stretch low:high of the bounds, all at once."""
    low, high = low.copy(), high.copy()
    while (open_ := low < high).any():
        middle = np.where(open_, (low + high) // 2, 0)
        at = bounds[middle]
        before = (at <= values) if right else (at < values)
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    return low


class SegmentCache:
    """Segments that this process keeps mapped: those that were used last, up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self.max_bytes = most_bytes
        self._held: OrderedDict[Path, tuple[Segment, int]] = OrderedDict()
        self.bytes = 0

    def get(self, path: Path) -> Segment:
        """Open it, or have it again; others make room, but never the one that is asked for."""
        held = self._held.get(path)
        if held is None:
            held = self._held[path] = Segment(open_blocks(path)), path.stat().st_size
            self.bytes += held[1]
        self._held.move_to_end(path)
        while self.bytes > self.max_bytes and len(self._held) > 1:
            _, (_, size) = self._held.popitem(last=False)
            self.bytes -= size
        return held[0]


worker_cache = SegmentCache(1 << 30)
