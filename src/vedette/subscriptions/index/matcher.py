"""Which subscriptions a batch of changes concerns, and how: look-up, exact check, before beside after.

The answer is exact: whatever the index proposes is held against the whole filter. `scan` is the same without the index,
and the property test wants both to agree on every filter and every change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vedette.clock import SystemClock
from vedette.subscriptions.collection_watch import field_value
from vedette.subscriptions.index.change_batch import ImageRows
from vedette.subscriptions.index.columns import Bools, Ints, UInts
from vedette.subscriptions.index.pair_evaluation import CONDITION, truth_of
from vedette.subscriptions.index.segment import Segment, ShapeRows
from vedette.subscriptions.policy_view import without
from vedette.subscriptions.shape import Shape
from vedette.watch.delta import same

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
    "shown",
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
    hidden_before: UInts
    """Attributes that policies hide from the subscriber, as bits in the order of the shape's `hidden`."""
    hidden_after: UInts
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
            hidden_before=self.hidden_before[rows],
            hidden_after=self.hidden_after[rows],
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
        hidden_before=np.concatenate([np.empty(0, np.uint64), *(part.hidden_before for part in parts)]),
        hidden_after=np.concatenate([np.empty(0, np.uint64), *(part.hidden_after for part in parts)]),
        forms=tuple(forms),
        counts=counts,
    )


def match_segment(
    segment: Segment, images: ImageRows, *, newer_than: int = -1, indexed: bool = True
) -> Matches:
    """The answer of one segment. Without the index every subscription is a candidate for every image."""
    counts = MatchCounts()
    if indexed:
        looked_up = segment.look_up(images)
        pairs, rows = looked_up.images, looked_up.rows
        counts.absent, counts.passed = looked_up.absent, looked_up.passed
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
    shapes = (np.searchsorted(segment.shape_starts, rows, "right") - 1).astype(np.int32)
    masks = np.zeros((2, len(rows)), np.uint64)
    for part in segment.shapes:
        if part.shape.hidden:
            _mask(
                segment, part, images, masks, (changes, rows, reasons), np.flatnonzero(shapes == part.place)
            )
    found = Matches(
        change=changes,
        number=segment.numbers[rows],
        gateway=segment.gateways[rows],
        reason=reasons,
        flags=segment.flags[rows],
        shape=shapes,
        hidden_before=masks[0],
        hidden_after=masks[1],
        forms=tuple(part.form for part in segment.shapes),
        counts=counts,
    )
    found = _seen(found, images, segment)
    counts.matched = len(found)
    return found


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


# --- what policies hide -----------------------------------------------------------------------------------------


def _mask(
    segment: Segment,
    part: ShapeRows,
    images: ImageRows,
    masks: UInts,
    found: tuple[Ints, Ints, npt.NDArray[np.uint8]],
    chosen: Ints,
) -> None:
    """Enter which attributes of the images are hidden, for the chosen matches of one shape."""
    changes, rows, reasons = found
    for side, bit in enumerate((LEAVE, ENTER)):
        concerned = chosen[(reasons[chosen] & bit) != 0]
        place = np.searchsorted(images.change, changes[concerned], "right" if side else "left") - side
        for number in range(len(part.shape.hidden)):
            truth = truth_of(segment, part, number, images, place, rows[concerned] - part.start)
            masks[side][concerned] |= truth.true.astype(np.uint64) << np.uint64(number)


def _seen(found: Matches, images: ImageRows, segment: Segment) -> Matches:
    """Leave out updates of which a subscriber sees nothing, where policies hide attributes from it."""
    masking = [part.place for part in segment.shapes if part.shape.hidden]
    if not masking:
        return found
    unseen, known = [], {}
    for row in np.flatnonzero((found.reason == UPDATE) & np.isin(found.shape, masking)).tolist():
        columns = (found.change, found.shape, found.hidden_before, found.hidden_after)
        change, place, *bits = (int(column[row]) for column in columns)
        if (change, place, *bits) not in known:
            shape = segment.shapes[place].shape
            one, other = (
                _told(shape, images.changes[change].key, image, bit)
                for image, bit in zip(images.changes[change][3:], bits, strict=True)
            )
            known[change, place, *bits] = same(one, other)
        if known[change, place, *bits]:
            unseen.append(row)
    return found.take(np.delete(np.arange(len(found)), unseen))


def _told(shape: Shape, key: str, image: Mapping[str, Any] | None, bits: int) -> Any:
    """What a subscriber with this shape sees of an image: the row of a WATCH, else the document."""
    document = shown(shape, image or {}, bits)
    if shape.returns is None or shape.window:
        return document
    return [field_value(path, key, document, "") for _, path in shape.returns]


def shown(shape: Shape, image: Mapping[str, Any], bits: int) -> Mapping[str, Any]:
    """An image without the attributes whose bits are set."""
    if not bits:
        return image
    return without(image, [name for number, (name, _) in enumerate(shape.hidden) if bits >> number & 1])


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
    truth = truth_of(segment, part, CONDITION, images, pairs, rows)
    counts.faults += int(np.count_nonzero(truth.fault))
    return truth.true
