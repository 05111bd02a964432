"""Which subscriptions a batch of changes concerns, and how: look-up, exact check, before beside after.

The answer is exact: whatever the index proposes is held against the whole filter. `scan` is the same without the index,
and the property test wants both to agree on every filter and every change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vedette.clock import SystemClock
from vedette.language.documents import DocumentFilter, Outcome, compile_filter
from vedette.subscriptions.columns import Bools, Column, Ints
from vedette.subscriptions.evaluation import ListColumn, Program, Truth, vectorise
from vedette.subscriptions.forms import shape_of
from vedette.subscriptions.image_rows import ImageRows
from vedette.subscriptions.segment import Segment, ShapeRows
from vedette.subscriptions.shapes import Constant, FieldPath, bind

__all__ = [
    "ENTER",
    "LEAVE",
    "UPDATE",
    "Match",
    "MatchCounts",
    "Matches",
    "match_segment",
    "match_segments",
    "scan",
]

_clock = SystemClock()
LEAVE, ENTER, UPDATE = 1, 2, 3
"""Bits: 1 when the image before matched, 2 when the image after does."""


@dataclass(slots=True, kw_only=True)
class MatchCounts:
    """What matching did, to be summed up."""

    candidates: int = 0
    matched: int = 0
    faults: int = 0
    absent: int = 0
    """Keys asked for that no subscription has."""
    passed: int = 0
    """Of those, let through by a Bloom filter."""
    times: list[tuple[float, bytes]] = field(default_factory=list)
    """Milliseconds of the exact check, and the form, of each shape that had candidates."""

    def add(self, other: MatchCounts) -> None:
        self.candidates += other.candidates
        self.matched += other.matched
        self.faults += other.faults
        self.absent += other.absent
        self.passed += other.passed
        self.times += other.times


class Match(NamedTuple):
    """One subscription that one change concerns."""

    change: int
    number: int
    reason: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Row by row: a change, a subscription and its gateway, and how the change concerns it. Sorted by change."""

    change: Ints
    number: Ints
    gateway: npt.NDArray[np.int32]
    reason: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    shape: npt.NDArray[np.int32]
    """Into `forms`."""
    forms: tuple[bytes, ...]
    counts: MatchCounts

    def __len__(self) -> int:
        return len(self.change)

    def __iter__(self) -> Iterator[Match]:
        columns = (self.change.tolist(), self.number.tolist(), self.reason.tolist())
        return map(Match._make, zip(*columns, strict=True))

    def take(self, rows: Ints) -> Matches:
        return Matches(
            change=self.change[rows],
            number=self.number[rows],
            gateway=self.gateway[rows],
            reason=self.reason[rows],
            flags=self.flags[rows],
            shape=self.shape[rows],
            forms=self.forms,
            counts=self.counts,
        )


def match_segments(
    segments: Sequence[Segment],
    tombstones: Ints,
    images: ImageRows,
    *,
    newer_than: int = -1,
    indexed: bool = True,
) -> Matches:
    """The answer of all segments of a collection; `tombstones` are numbers of subscriptions that ended, sorted.

    `newer_than`: only subscriptions that came with a later version of the registry.
    """
    parts = [match_segment(segment, images, newer_than=newer_than, indexed=indexed) for segment in segments]
    found = parts[0] if len(parts) == 1 else _concatenated(parts)
    if len(tombstones):
        found = found.take(np.flatnonzero(~np.isin(found.number, tombstones)))
    return found if len(parts) == 1 else found.take(np.argsort(found.change, kind="stable"))


def _concatenated(parts: Sequence[Matches]) -> Matches:
    forms: list[bytes] = []
    shapes: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
    counts = MatchCounts()
    for part in parts:
        shapes.append(part.shape + np.int32(len(forms)))
        forms.extend(part.forms)
        counts.add(part.counts)
    return Matches(
        change=np.concatenate([np.empty(0, np.int64), *(part.change for part in parts)]),
        number=np.concatenate([np.empty(0, np.int64), *(part.number for part in parts)]),
        gateway=np.concatenate([np.empty(0, np.int32), *(part.gateway for part in parts)]),
        reason=np.concatenate([np.empty(0, np.uint8), *(part.reason for part in parts)]),
        flags=np.concatenate([np.empty(0, np.uint8), *(part.flags for part in parts)]),
        shape=np.concatenate(shapes),
        forms=tuple(forms),
        counts=counts,
    )


def match_segment(
    segment: Segment, images: ImageRows, *, newer_than: int = -1, indexed: bool = True
) -> Matches:
    """The answer of one segment. Without the index every subscription is a candidate for every image."""
    counts = MatchCounts()
    if indexed:
        found = segment.look_up(images)
        pairs, rows = found.images, found.rows
        counts.absent, counts.passed = found.absent, found.passed
    else:
        pairs = np.repeat(np.arange(len(images)), len(segment))
        rows = np.tile(np.arange(len(segment)), len(images))
    fresh = (images.offsets[pairs] > segment.boundaries[rows]) & (segment.added[rows] > newer_than)
    pairs, rows = pairs[fresh], rows[fresh]
    counts.candidates = len(rows)
    exact = _exact(segment, images, pairs, rows, counts)
    pairs, rows = pairs[exact], rows[exact]
    joined, reasons = _joined(images, pairs, rows, segment)
    changes, rows = joined >> 32, joined & 0xFFFFFFFF
    counts.matched = len(rows)
    shapes = (np.searchsorted(segment.shape_starts, rows, "right") - 1).astype(np.int32)
    return Matches(
        change=changes,
        number=segment.numbers[rows],
        gateway=segment.gateways[rows],
        reason=reasons,
        flags=segment.flags[rows],
        shape=shapes,
        forms=tuple(part.form for part in segment.shapes),
        counts=counts,
    )


def scan(segments: Sequence[Segment], tombstones: Ints, images: ImageRows) -> Matches:
    """`match_segments` without the index: slow, and what the index is held against."""
    return match_segments(segments, tombstones, images, indexed=False)


def _joined(
    images: ImageRows, pairs: Ints, rows: Ints, segment: Segment
) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Put the answers about the images before and after one change together."""
    keys = images.change[pairs] << 32 | rows
    sides = np.where(images.after[pairs], ENTER, LEAVE).astype(np.uint8)
    eventful = np.array([part.shape.eventful for part in segment.shapes], np.bool_)
    if eventful.any():  # a filter about the change: the change is what it is
        about = eventful[np.searchsorted(segment.shape_starts, rows, "right") - 1]
        sides[about] = _own_reason(images)[images.change[pairs[about]]]
    order = np.argsort(keys, kind="stable")
    keys, sides = keys[order], sides[order]
    firsts = (
        np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        if len(keys)
        else np.empty(0, np.int64)
    )
    return keys[firsts], np.bitwise_or.reduceat(sides, firsts) if len(keys) else sides


def _own_reason(images: ImageRows) -> npt.NDArray[np.uint8]:
    return np.array([(c.before is not None) | (c.after is not None) << 1 for c in images.changes], np.uint8)


def _exact(segment: Segment, images: ImageRows, pairs: Ints, rows: Ints, counts: MatchCounts) -> Bools:
    """Which candidates are matches, by the whole filter."""
    found = np.zeros(len(rows), np.bool_)
    shapes = np.searchsorted(segment.shape_starts, rows, "right") - 1
    order = np.argsort(shapes, kind="stable")
    edges = np.searchsorted(shapes[order], np.arange(len(segment.shapes) + 1))
    for part in segment.shapes:
        chosen = order[edges[part.place] : edges[part.place + 1]]
        if part.shape.eventful:
            chosen = chosen[images.subject[pairs[chosen]]]
        if len(chosen):
            begin = _clock.monotonic()
            found[chosen] = _check(segment, part, images, pairs[chosen], rows[chosen] - part.start, counts)
            counts.times.append(((_clock.monotonic() - begin) * 1000, part.form))
    return found


def _check(
    segment: Segment, part: ShapeRows, images: ImageRows, pairs: Ints, rows: Ints, counts: MatchCounts
) -> Bools:
    program = _program(part.form)
    if program is not None:
        truth = program(_SegmentPairs(segment, part, images, pairs, rows))
    else:
        truth = _by_closures(segment, part, images, pairs, rows)
    counts.faults += int(np.count_nonzero(truth.fault))
    return truth.true


@lru_cache(maxsize=4096)
def _program(form: bytes) -> Program | None:
    return vectorise(shape_of(form))


class _SegmentPairs:
    """Images beside rows of one shape; columns are gathered once."""

    def __init__(self, segment: Segment, part: ShapeRows, images: ImageRows, pairs: Ints, rows: Ints) -> None:
        self._segment, self._part, self._images = segment, part, images
        self._pairs, self._rows = pairs, rows
        self._fields: dict[FieldPath, Column] = {}
        self.size = len(rows)

    def field(self, path: FieldPath) -> Column:
        column = self._fields.get(path)
        if column is None:
            column = self._fields[path] = self._images.field(path).take(self._pairs)
        return column

    def constant(self, index: int) -> Column:
        return self._segment.constant(self._part.place, index).take(self._rows)

    def list(self, index: int) -> ListColumn:
        starts = self._segment.list_starts(self._part.place, index)
        counts = starts[self._rows + 1] - starts[self._rows]
        owners = np.repeat(np.arange(self.size), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.repeat(starts[self._rows], counts) + within
        return ListColumn(self._segment.constant(self._part.place, index).take(places), owners)


def _by_closures(segment: Segment, part: ShapeRows, images: ImageRows, pairs: Ints, rows: Ints) -> Truth:
    """Pair by pair, for filters that no column code is made of."""
    true, fault = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    for place, (image, row) in enumerate(zip(pairs.tolist(), rows.tolist(), strict=True)):
        outcome = _closure(part.form, _Constants(segment, part, row)).outcome(images.environment(image))
        true[place] = outcome is Outcome.MATCH
        fault[place] = outcome is Outcome.FAILED
    return Truth(true, fault)


class _Constants:
    """The constants of one row, told apart by where they stand, so that a compiled filter is found again."""

    __slots__ = ("_part", "_row", "_segment")

    def __init__(self, segment: Segment, part: ShapeRows, row: int) -> None:
        self._segment, self._part, self._row = segment, part, row

    def __hash__(self) -> int:
        return hash((id(self._segment), self._part.place, self._row))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constants) and (
            (self._segment is other._segment, self._part.place, self._row)
            == (True, other._part.place, other._row)
        )

    def values(self) -> tuple[Constant, ...]:
        return tuple(self._value(index) for index in range(self._part.shape.constants))

    def _value(self, index: int) -> Constant:
        column = self._segment.constant(self._part.place, index)
        if not self._segment.is_list(self._part.place, index):
            return column.value(self._row)
        starts = self._segment.list_starts(self._part.place, index)
        return [column.value(place) for place in range(starts[self._row], starts[self._row + 1])]


@lru_cache(maxsize=10_000)
def _closure(form: bytes, constants: _Constants) -> DocumentFilter:
    return compile_filter(bind(shape_of(form), constants.values()))
