"""Build a segment of the index: group subscriptions by shape, collect their keys, write the arrays.

Arrays of the file (`array_file.py`), one item per subscription unless stated otherwise:

    numbers, gateways, boundaries, flags, added     as in SegmentEntry, grouped by shape
    s<shape>.c<slot>.kinds, .bits, .offsets, .data  constants of one slot of one shape, a column (`columns.py`)
    s<shape>.c<slot>.starts                         for lists: where the items of each row start in that column
    k<signature>.row, .bound                        rows and range bounds of all keys, sorted by (hash, bound)
    k<signature>.hash, .first, …                    hash table over the sorted hashes (`hash_table.py`)
    bloom                                           Bloom filter over the hashes of all composite keys

The metadata has `shapes`, each with an example `spec` and its first row `start`, and `signatures`, each as
[paths, range path or null, is lower bound]. `INDEX_FORMAT` in `versions.py` changes with this format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vedette.subscriptions.index.array_file import write_array_file
from vedette.subscriptions.index.bloom_filter import build_bloom
from vedette.subscriptions.index.columns import TEXT, Column, Ints, UInts, build_column
from vedette.subscriptions.index.hash_table import build_hash_table
from vedette.subscriptions.index.key_signature import KeySignature, combine_hashes, sortable_bounds
from vedette.subscriptions.required_keys import KeyAlternative, key_alternatives
from vedette.subscriptions.shape import Constant, ConstantSlot, ListSlot, Shape
from vedette.subscriptions.spec import shape_of_spec

__all__ = ["SegmentEntry", "write_segment"]


class SegmentEntry(NamedTuple):
    """A subscription to be written to a segment."""

    number: int
    gateway: int
    boundary: int
    """Journal offset of its snapshot; only later changes concern it."""
    flags: int
    spec: bytes
    """Example of its shape: the JSON of a SubscriptionSpec with any constants."""
    constants: tuple[Constant, ...]
    added: int = 0
    """Registry version in which it was added."""


@dataclass(slots=True)
class _KeyEntries:
    """The keys of one signature, collected while a segment is built. Parallel arrays, one per shape."""

    hashes: list[UInts]
    bounds: list[npt.NDArray[np.float64]]
    rows: list[Ints]


def write_segment(path: Path, entries: Sequence[SegmentEntry]) -> int:
    """Write subscriptions to a new segment file. Returns its size in bytes."""
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
    keys: dict[KeySignature, _KeyEntries] = {}
    shape_entries, start = [], 0
    for index, group in enumerate(shapes.values()):
        shape = shape_of_spec(group[0].spec)
        columns = _constant_columns(shape, [entry.constants for entry in group])
        for slot, column in columns.items():
            arrays |= _column_arrays(f"s{index}.c{slot}", column)
        for alternative in key_alternatives(shape):
            _add_keys(keys, alternative, columns, start, len(group))
        shape_entries.append({"spec": group[0].spec.decode(), "start": start})
        start += len(group)
    signatures = _sorted_keys(keys, arrays)
    return write_array_file(path, {"shapes": shape_entries, "signatures": signatures}, arrays)


class _Lists(NamedTuple):
    """A list constant of each row: all items in one column, and where the list of each row starts."""

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
    keys: dict[KeySignature, _KeyEntries],
    alternative: KeyAlternative,
    columns: Mapping[int, Column | _Lists],
    start: int,
    count: int,
) -> None:
    """Add the keys of one alternative for all subscriptions of a shape. They have the rows from `start` on."""
    bound = alternative.range
    signature = KeySignature(
        tuple(equality.path for equality in alternative.equalities),
        bound.path if bound is not None else None,
        bound.is_lower_bound if bound is not None else True,
    )
    rows: Ints = np.arange(count)
    for equality in alternative.equalities:  # at most one list; a row has one key per item
        if isinstance(equality.constant, ListSlot):
            lists = columns[equality.constant.index]
            assert isinstance(lists, _Lists)
            rows = np.repeat(np.arange(count), np.diff(lists.starts))
    hashes, is_hashable = np.full(len(rows), signature.salt), np.ones(len(rows), np.bool_)
    for equality in alternative.equalities:
        column = _equality_column(equality.constant, columns, rows)
        hashes, is_hashable = combine_hashes(hashes, column), is_hashable & column.is_hashable
    bounds = np.zeros(len(rows))
    if bound is not None:
        bounds, comparable = sortable_bounds(
            _scalar(columns, bound.constant).take(rows), bound.is_lower_bound
        )
        is_hashable &= comparable
    entries = keys.setdefault(signature, _KeyEntries([], [], []))
    entries.hashes.append(hashes[is_hashable])
    entries.bounds.append(bounds[is_hashable])
    entries.rows.append(rows[is_hashable] + start)


def _equality_column(
    constant: ConstantSlot | ListSlot | bool, columns: Mapping[int, Column | _Lists], rows: Ints
) -> Column:
    if isinstance(constant, bool):
        return build_column([True] * len(rows))
    column = columns[constant.index]
    return column.items if isinstance(column, _Lists) else column.take(rows)


def _scalar(columns: Mapping[int, Column | _Lists], slot: ConstantSlot) -> Column:
    column = columns[slot.index]
    assert isinstance(column, Column)
    return column


def _sorted_keys(keys: Mapping[KeySignature, _KeyEntries], arrays: dict[str, npt.NDArray[Any]]) -> list[Any]:
    in_bloom: list[UInts] = []
    signatures = []
    for index, (signature, entries) in enumerate(keys.items()):
        hashes, bounds = np.concatenate(entries.hashes), np.concatenate(entries.bounds)
        order = np.lexsort((bounds, hashes))
        arrays |= {f"k{index}.{name}": array for name, array in build_hash_table(hashes[order]).items()}
        arrays[f"k{index}.row"] = np.concatenate(entries.rows)[order].astype(np.uint32)
        if signature.range_path is not None:
            arrays[f"k{index}.bound"] = bounds[order]
        if signature.paths and not signature.is_document_key:
            in_bloom.append(np.unique(hashes))
        signatures.append([signature.paths, signature.range_path, signature.is_lower_bound])
    if in_bloom:
        arrays["bloom"] = build_bloom(np.concatenate(in_bloom))
    return signatures
