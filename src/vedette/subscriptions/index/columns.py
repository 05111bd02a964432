"""Values of one field over many documents, or of one constant over many subscriptions, as numpy columns.

A column holds values of any kind side by side, because documents do. A scalar is described by three arrays: its kind,
64 bits (an integer, the bits of a double, a boolean, milliseconds), and for text a slice of UTF-8. Lists and maps
have only a kind; their contents are evaluated in Python.

Equality and order are those of vedette.filters.operators, for all pairs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vedette.values import duration_from_ms, duration_to_ms, timestamp_from_ms, timestamp_to_ms

__all__ = [
    "BOOL",
    "DURATION",
    "INT",
    "MISSING",
    "MISSING_FIELD",
    "NO_PARENT",
    "NULL",
    "TEXT",
    "Bools",
    "Column",
    "Ints",
    "UInts",
    "build_column",
    "compare_ordered",
    "equal",
    "extract_field",
    "splitmix64",
    "text_hashes",
]

Ints: TypeAlias = npt.NDArray[np.int64]
UInts: TypeAlias = npt.NDArray[np.uint64]
Bools: TypeAlias = npt.NDArray[np.bool_]

NO_PARENT, MISSING, NULL, BOOL, INT, FLOAT, TEXT, TIMESTAMP, DURATION, LIST, MAP = range(11)
"""Kinds. NO_PARENT: the parent of the field does not exist. MISSING: the parent exists, the field does not."""


class _Marker:
    """Marker of a missing value."""


class _Unreachable(_Marker):
    pass


MISSING_FIELD, NO_PARENT_FIELD = _Marker(), _Unreachable()
_KIND_OF: dict[type, int] = {
    _Unreachable: NO_PARENT,
    _Marker: MISSING,
    type(None): NULL,
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: TEXT,
    datetime: TIMESTAMP,
    timedelta: DURATION,
    list: LIST,
    dict: MAP,
}
MAX_EXACT_INT = 2**53
"""Largest integer that is exact as a double."""


@dataclass(frozen=True, slots=False, eq=False)
class Column:
    kinds: npt.NDArray[np.uint8]
    bits: Ints
    text_offsets: Ints
    """Start of each text in the data, and the end of the last one; empty if no value is text."""
    text_data: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.kinds)

    @cached_property
    def texts(self) -> pa.LargeStringArray:
        """Return the texts; an empty text where the value is not text."""
        count = len(self.kinds)
        offsets = self.text_offsets if len(self.text_offsets) else np.zeros(count + 1, np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.text_data)]
        return pa.Array.from_buffers(pa.large_string(), count, buffers)

    @cached_property
    def hashes(self) -> UInts:
        """Return a hash per value.

        Equal values have equal hashes, in every process and release. Valid where `is_hashable`.
        """
        numbers = (self.kinds == INT) | (self.kinds == FLOAT)
        words = self.bits.view(np.uint64) ^ (self.kinds.astype(np.uint64) << np.uint64(56))
        if numbers.any():
            doubles = self.doubles + 0.0  # -0.0 becomes 0.0
            words = np.where(numbers, doubles.view(np.uint64) ^ np.uint64(0x4E), words)
        words = splitmix64(words)
        texts = self.kinds == TEXT
        return np.where(texts, text_hashes(self), words) if texts.any() else words

    @cached_property
    def is_hashable(self) -> Bools:
        """True where the value is a scalar that can equal something: no list, map, NaN or missing value."""
        scalar = (self.kinds >= NULL) & (self.kinds <= DURATION)
        return scalar & ~((self.kinds == FLOAT) & np.isnan(self.doubles))

    @cached_property
    def doubles(self) -> npt.NDArray[np.float64]:
        """Return numbers as doubles (large integers are rounded) and timestamps as milliseconds."""
        return np.where(self.kinds == FLOAT, self.bits.view(np.float64), self.bits.astype(np.float64))

    def value(self, row: int) -> Any:
        """Return one value as a Python object; None for lists, maps and missing values."""
        bits = self.bits[row : row + 1]
        match int(self.kinds[row]):
            case 2:
                return None
            case 3:
                return bool(bits[0])
            case 4:
                return int(bits[0])
            case 5:
                return float(bits.view(np.float64)[0])
            case 6:
                return self.texts[row].as_py()
            case 7:
                return timestamp_from_ms(int(bits[0]))
            case 8:
                return duration_from_ms(int(bits[0]))
        raise ValueError("a column keeps scalars only")

    def take(self, rows: Ints) -> Column:
        texts = self.texts.take(pa.array(rows)) if len(self.text_offsets) else None
        return _column(self.kinds[rows], self.bits[rows], texts)


def _column(kinds: npt.NDArray[np.uint8], bits: Ints, texts: Any) -> Column:
    if texts is None:
        return Column(kinds, bits, np.empty(0, np.int64), np.empty(0, np.uint8))
    _, offsets, data = texts.buffers()
    start, count = texts.offset, len(texts)
    places = np.frombuffer(offsets, np.int64, count + 1, start * 8)
    held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Column(kinds, bits, places, held)


def build_column(values: Sequence[Any]) -> Column:
    """Build a column from canonical values (`vedette.values`), including MISSING_FIELD and NO_PARENT_FIELD."""
    count = len(values)
    types = set(map(type, values))
    if len(types) == 1:
        kinds = np.full(count, _KIND_OF.get(types.pop(), MAP), np.uint8)
    else:
        kinds = np.fromiter(map(_KIND_OF.get, map(type, values), repeat(MAP)), np.uint8, count)
    counts = np.bincount(kinds, minlength=MAP + 1)
    bits = np.zeros(count, np.int64)
    for kind, read in _BITS:
        if counts[kind] == count:
            bits[:] = read(values)
        elif counts[kind]:
            places = np.flatnonzero(kinds == kind)
            bits[places] = read([values[place] for place in places.tolist()])
    if not counts[TEXT]:
        return _column(kinds, bits, None)
    texts = values if counts[TEXT] == count else [v if type(v) is str else "" for v in values]
    return _column(kinds, bits, pa.array(texts, pa.large_string()))


def _double_bits(values: Sequence[Any]) -> Ints:
    return np.array(values, np.float64).view(np.int64)


def _reader(read: Callable[[Any], int]) -> Callable[[Sequence[Any]], Ints]:
    return lambda values: np.fromiter(map(read, values), np.int64, len(values))


_BITS: tuple[tuple[int, Callable[[Sequence[Any]], Ints]], ...] = (
    (BOOL, _reader(int)),
    (INT, lambda values: np.array(values, np.int64)),
    (FLOAT, _double_bits),
    (TIMESTAMP, _reader(timestamp_to_ms)),
    (DURATION, _reader(duration_to_ms)),
)


def extract_field(documents: Sequence[dict[str, Any] | None], path: Sequence[str]) -> list[Any]:
    """Return the value at a path of each document."""
    first, *rest = path
    try:
        values = [document[first] for document in documents]  # type: ignore[index]
    except (KeyError, TypeError):
        values = [NO_PARENT_FIELD if d is None else d.get(first, MISSING_FIELD) for d in documents]
    for name in rest:
        values = [v.get(name, MISSING_FIELD) if v.__class__ is dict else NO_PARENT_FIELD for v in values]
    return values


# --- hashes -----------------------------------------------------------------------------------------------------

HASHED_TEXT_BYTES = 64
"""Of a text longer than twice this number of bytes, only the first and last bytes and the length are hashed."""


def splitmix64(words: UInts) -> UInts:
    """Apply the finalizer of splitmix64: every input bit affects every output bit."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def text_hashes(column: Column) -> UInts:
    """Return the hashes of the texts of a column. Processes eight bytes of all rows at a time."""
    starts, ends = column.text_offsets[:-1], column.text_offsets[1:]
    lengths = ends - starts
    heads = _words(column.text_data, starts, np.minimum(lengths, HASHED_TEXT_BYTES))
    found = _fold(heads, splitmix64(lengths.astype(np.uint64) + np.uint64(1)))
    if lengths.max(initial=0) > HASHED_TEXT_BYTES:
        # The hash of a short text must not depend on the other rows.
        tails = np.where(lengths > HASHED_TEXT_BYTES, HASHED_TEXT_BYTES, 0)
        found = _fold(_words(column.text_data, ends - tails, tails), found)
    return found


def _words(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> UInts:
    """Return the bytes of each row, padded with zeros, as 64-bit words."""
    width = int(-(-lengths.max(initial=0) // 8) * 8)
    padded = np.zeros((len(starts), width), np.uint8)
    if width:
        rows = np.repeat(np.arange(len(starts)), lengths)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        padded[rows, within] = data[np.repeat(starts, lengths) + within]
    return padded.view(np.uint64).reshape(len(starts), width // 8)


def _fold(words: UInts, found: UInts) -> UInts:
    for place in range(words.shape[1]):
        # Trailing zero words change nothing, so the hash of a row does not depend on the length of other rows.
        column = words[:, place]
        folded = splitmix64(found * np.uint64(0x9E3779B97F4A7C15) ^ column)
        found = np.where(column == 0, found, folded)
    return found


# --- comparisons ------------------------------------------------------------------------------------------------


def _numeric(kinds: npt.NDArray[np.uint8]) -> Bools:
    return (kinds == INT) | (kinds == FLOAT)


def equal(left: Column, right: Column) -> Bools:
    """Compare row by row. False where a side is a list or a map."""
    same_kind = left.kinds == right.kinds
    simple = same_kind & (left.kinds != FLOAT) & (left.kinds != TEXT) & (left.kinds < LIST)
    found = simple & (left.bits == right.bits)
    texts = same_kind & (left.kinds == TEXT)
    if texts.any():
        found |= texts & _arrow(pc.equal, left, right)
    numbers = _numeric(left.kinds) & _numeric(right.kinds) & ~(same_kind & (left.kinds == INT))
    if numbers.any():
        found |= numbers & _compare_numbers(np.equal, left, right, numbers)
    return found


_ORDERS: dict[str, tuple[Any, Any]] = {
    "<": (np.less, pc.less),
    "<=": (np.less_equal, pc.less_equal),
    ">": (np.greater, pc.greater),
    ">=": (np.greater_equal, pc.greater_equal),
}


def compare_ordered(op: str, left: Column, right: Column) -> tuple[Bools, Bools]:
    """Return where `left op right` is true, and where the values are not comparable: different families, lists, maps,
    missing.
    """
    compare, compare_texts = _ORDERS[op]
    same_kind = left.kinds == right.kinds
    bits = same_kind & ((left.kinds == INT) | (left.kinds == TIMESTAMP) | (left.kinds == DURATION))
    texts = same_kind & (left.kinds == TEXT)
    numbers = _numeric(left.kinds) & _numeric(right.kinds) & ~bits
    found = bits & compare(left.bits, right.bits)
    if texts.any():
        found |= texts & _arrow(compare_texts, left, right)
    if numbers.any():
        found |= numbers & _compare_numbers(compare, left, right, numbers)
    return found, ~(bits | texts | numbers)


def _arrow(compare: Any, left: Column, right: Column) -> Bools:
    found: Bools = compare(left.texts, right.texts).to_numpy(zero_copy_only=False)
    return found


def _compare_numbers(compare: Any, left: Column, right: Column, where: Bools) -> Bools:
    """Compare as doubles. Integers too large for a double are compared exactly in Python."""
    found: Bools = compare(left.doubles, right.doubles)
    large = (left.kinds == INT) & (np.abs(left.doubles) >= MAX_EXACT_INT)
    large |= (right.kinds == INT) & (np.abs(right.doubles) >= MAX_EXACT_INT)
    for place in np.flatnonzero(large & where).tolist():
        found[place] = _PYTHON[compare](_number(left, place), _number(right, place))
    return found


_PYTHON: dict[Any, Callable[[Any, Any], bool]] = {
    np.equal: lambda one, other: one == other,
    np.less: lambda one, other: one < other,
    np.less_equal: lambda one, other: one <= other,
    np.greater: lambda one, other: one > other,
    np.greater_equal: lambda one, other: one >= other,
}


def _number(column: Column, place: int) -> int | float:
    bits = column.bits[place : place + 1]
    return float(bits.view(np.float64)[0]) if column.kinds[place] == FLOAT else int(bits[0])
