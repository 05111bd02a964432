"""Match a batch of changes: look up candidates, evaluate the exact filter, combine before and after.

The result is exact: every candidate is checked with its whole filter. `match_by_scan` does without the index, and a
property test compares the two on every filter and change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vedette.clock import SystemClock
from vedette.subscriptions.collection_watch import field_value
from vedette.subscriptions.index.change_batch import ImageBatch
from vedette.subscriptions.index.columns import Bools, Ints, UInts
from vedette.subscriptions.index.pair_evaluation import CONDITION, evaluate_pairs
from vedette.subscriptions.index.segment import Segment, ShapeGroup
from vedette.subscriptions.policy_view import drop_attributes
from vedette.subscriptions.shape import Shape
from vedette.watch.delta import values_equal

__all__ = [
    "ENTER",
    "LEAVE",
    "UPDATE",
    "Match",
    "MatchCounts",
    "Matches",
    "match_by_scan",
    "match_segment",
    "match_segments",
    "redact_by_mask",
]

_clock = SystemClock()
LEAVE, ENTER, UPDATE = 1, 2, 3
"""Bit flags: 1 if the image before matched, 2 if the image after matches."""


@dataclass(slots=True, kw_only=True)
class MatchCounts:
    """Counters of one matching call."""

    candidates: int = 0
    matched: int = 0
    faults: int = 0
    absent_keys: int = 0
    """Number of looked-up keys that no subscription has."""
    false_positives: int = 0
    """Number of absent keys that passed a Bloom filter."""
    times: list[tuple[float, bytes]] = field(default_factory=list)
    """For each shape with candidates: the time of the exact check in milliseconds, and the spec of the shape."""

    def add(self, other: MatchCounts) -> None:
        self.candidates += other.candidates
        self.matched += other.matched
        self.faults += other.faults
        self.absent_keys += other.absent_keys
        self.false_positives += other.false_positives
        self.times += other.times


class Match(NamedTuple):
    """One subscription that matches one change."""

    change: int
    subscription: int
    transition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """All matches of a batch as parallel arrays, sorted by change."""

    change: Ints
    number: Ints
    gateway: npt.NDArray[np.int32]
    transition: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    shape: npt.NDArray[np.int32]
    """Index of the shape in `specs`."""
    hidden_before: UInts
    """Attributes that policies hide from the subscriber, as bits in the order of the shape's masks."""
    hidden_after: UInts
    specs: tuple[bytes, ...]
    counts: MatchCounts

    def __len__(self) -> int:
        return len(self.change)

    def __iter__(self) -> Iterator[Match]:
        columns = (self.change.tolist(), self.number.tolist(), self.transition.tolist())
        return map(Match._make, zip(*columns, strict=True))

    def take(self, rows: Ints) -> Matches:
        return Matches(
            change=self.change[rows],
            number=self.number[rows],
            gateway=self.gateway[rows],
            transition=self.transition[rows],
            flags=self.flags[rows],
            shape=self.shape[rows],
            hidden_before=self.hidden_before[rows],
            hidden_after=self.hidden_after[rows],
            specs=self.specs,
            counts=self.counts,
        )


def match_segments(
    segments: Sequence[Segment],
    tombstones: Ints,
    images: ImageBatch,
    *,
    newer_than: int = -1,
    indexed: bool = True,
) -> Matches:
    """Match all segments of a collection. `tombstones` are the sorted numbers of ended subscriptions.

    `newer_than` selects subscriptions added with a later version of the registry.
    """
    parts = [match_segment(segment, images, newer_than=newer_than, indexed=indexed) for segment in segments]
    found = parts[0] if len(parts) == 1 else _concatenated(parts)
    if len(tombstones):
        found = found.take(np.flatnonzero(~np.isin(found.number, tombstones)))
    return found if len(parts) == 1 else found.take(np.argsort(found.change, kind="stable"))


def _concatenated(parts: Sequence[Matches]) -> Matches:
    specs: list[bytes] = []
    shapes: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
    counts = MatchCounts()
    for part in parts:
        shapes.append(part.shape + np.int32(len(specs)))
        specs.extend(part.specs)
        counts.add(part.counts)
    return Matches(
        change=np.concatenate([np.empty(0, np.int64), *(part.change for part in parts)]),
        number=np.concatenate([np.empty(0, np.int64), *(part.number for part in parts)]),
        gateway=np.concatenate([np.empty(0, np.int32), *(part.gateway for part in parts)]),
        transition=np.concatenate([np.empty(0, np.uint8), *(part.transition for part in parts)]),
        flags=np.concatenate([np.empty(0, np.uint8), *(part.flags for part in parts)]),
        shape=np.concatenate(shapes),
        hidden_before=np.concatenate([np.empty(0, np.uint64), *(part.hidden_before for part in parts)]),
        hidden_after=np.concatenate([np.empty(0, np.uint64), *(part.hidden_after for part in parts)]),
        specs=tuple(specs),
        counts=counts,
    )


def match_segment(
    segment: Segment, images: ImageBatch, *, newer_than: int = -1, indexed: bool = True
) -> Matches:
    """Match one segment. Without the index, every subscription is a candidate for every image."""
    counts = MatchCounts()
    if indexed:
        looked_up = segment.find_candidates(images)
        pairs, rows = looked_up.images, looked_up.rows
        counts.absent_keys, counts.false_positives = looked_up.absent_keys, looked_up.false_positives
    else:
        pairs = np.repeat(np.arange(len(images)), len(segment))
        rows = np.tile(np.arange(len(segment)), len(images))
    fresh = (images.offsets[pairs] > segment.boundaries[rows]) & (segment.added[rows] > newer_than)
    pairs, rows = pairs[fresh], rows[fresh]
    counts.candidates = len(rows)
    exact = _check_candidates(segment, images, pairs, rows, counts)
    pairs, rows = pairs[exact], rows[exact]
    joined, reasons = _merge_before_and_after(images, pairs, rows, segment)
    changes, rows = joined >> 32, joined & 0xFFFFFFFF
    shapes = (np.searchsorted(segment.shape_starts, rows, "right") - 1).astype(np.int32)
    masks = np.zeros((2, len(rows)), np.uint64)
    for part in segment.shapes:
        if part.shape.attribute_masks:
            _mask(
                segment,
                part,
                images,
                masks,
                (changes, rows, reasons),
                np.flatnonzero(shapes == part.shape_index),
            )
    found = Matches(
        change=changes,
        number=segment.numbers[rows],
        gateway=segment.gateways[rows],
        transition=reasons,
        flags=segment.flags[rows],
        shape=shapes,
        hidden_before=masks[0],
        hidden_after=masks[1],
        specs=tuple(part.spec for part in segment.shapes),
        counts=counts,
    )
    found = _drop_hidden_updates(found, images, segment)
    counts.matched = len(found)
    return found


def match_by_scan(segments: Sequence[Segment], tombstones: Ints, images: ImageBatch) -> Matches:
    """Do the same as `match_segments` without the index. Slow; the reference for tests."""
    return match_segments(segments, tombstones, images, indexed=False)


def _merge_before_and_after(
    images: ImageBatch, pairs: Ints, rows: Ints, segment: Segment
) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Combine the results for the images before and after one change."""
    keys = images.change[pairs] << 32 | rows
    sides = np.where(images.after[pairs], ENTER, LEAVE).astype(np.uint8)
    eventful = np.array([part.shape.depends_on_change for part in segment.shapes], np.bool_)
    if eventful.any():  # a filter on the change itself has one result
        about = eventful[np.searchsorted(segment.shape_starts, rows, "right") - 1]
        sides[about] = _transition_of_change(images)[images.change[pairs[about]]]
    order = np.argsort(keys, kind="stable")
    keys, sides = keys[order], sides[order]
    firsts = (
        np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        if len(keys)
        else np.empty(0, np.int64)
    )
    return keys[firsts], np.bitwise_or.reduceat(sides, firsts) if len(keys) else sides


# --- hidden attributes ------------------------------------------------------------------------------------------


def _mask(
    segment: Segment,
    part: ShapeGroup,
    images: ImageBatch,
    masks: UInts,
    found: tuple[Ints, Ints, npt.NDArray[np.uint8]],
    chosen: Ints,
) -> None:
    """Record which attributes of the images are hidden, for the selected matches of one shape."""
    changes, rows, reasons = found
    for side, bit in enumerate((LEAVE, ENTER)):
        concerned = chosen[(reasons[chosen] & bit) != 0]
        place = np.searchsorted(images.change, changes[concerned], "right" if side else "left") - side
        for number in range(len(part.shape.attribute_masks)):
            truth = evaluate_pairs(segment, part, number, images, place, rows[concerned] - part.start)
            masks[side][concerned] |= truth.true.astype(np.uint64) << np.uint64(number)


def _drop_hidden_updates(found: Matches, images: ImageBatch, segment: Segment) -> Matches:
    """Drop updates whose visible part did not change, where policies hide attributes."""
    masking = [part.shape_index for part in segment.shapes if part.shape.attribute_masks]
    if not masking:
        return found
    unseen, known = [], {}
    for row in np.flatnonzero((found.transition == UPDATE) & np.isin(found.shape, masking)).tolist():
        columns = (found.change, found.shape, found.hidden_before, found.hidden_after)
        change, place, *bits = (int(column[row]) for column in columns)
        if (change, place, *bits) not in known:
            shape = segment.shapes[place].shape
            one, other = (
                _visible_value(shape, images.changes[change].key, image, bit)
                for image, bit in zip(images.changes[change][3:], bits, strict=True)
            )
            known[change, place, *bits] = values_equal(one, other)
        if known[change, place, *bits]:
            unseen.append(row)
    return found.take(np.delete(np.arange(len(found)), unseen))


def _visible_value(shape: Shape, key: str, image: Mapping[str, Any] | None, bits: int) -> Any:
    """Return the visible part of an image for this shape: the row of a WATCH, else the document."""
    document = redact_by_mask(shape, image or {}, bits)
    if shape.columns is None or shape.window:
        return document
    return [field_value(path, key, document, "") for _, path in shape.columns]


def redact_by_mask(shape: Shape, image: Mapping[str, Any], bits: int) -> Mapping[str, Any]:
    """Return an image without the attributes whose bits are set."""
    if not bits:
        return image
    return drop_attributes(
        image, [name for number, (name, _) in enumerate(shape.attribute_masks) if bits >> number & 1]
    )


def _transition_of_change(images: ImageBatch) -> npt.NDArray[np.uint8]:
    return np.array([(c.before is not None) | (c.after is not None) << 1 for c in images.changes], np.uint8)


def _check_candidates(
    segment: Segment, images: ImageBatch, pairs: Ints, rows: Ints, counts: MatchCounts
) -> Bools:
    """Return the candidates that match the whole filter."""
    found = np.zeros(len(rows), np.bool_)
    shapes = np.searchsorted(segment.shape_starts, rows, "right") - 1
    order = np.argsort(shapes, kind="stable")
    edges = np.searchsorted(shapes[order], np.arange(len(segment.shapes) + 1))
    for part in segment.shapes:
        chosen = order[edges[part.shape_index] : edges[part.shape_index + 1]]
        if part.shape.depends_on_change:
            chosen = chosen[images.is_current_image[pairs[chosen]]]
        if len(chosen):
            begin = _clock.monotonic()
            found[chosen] = _check(segment, part, images, pairs[chosen], rows[chosen] - part.start, counts)
            counts.times.append(((_clock.monotonic() - begin) * 1000, part.spec))
    return found


def _check(
    segment: Segment, part: ShapeGroup, images: ImageBatch, pairs: Ints, rows: Ints, counts: MatchCounts
) -> Bools:
    truth = evaluate_pairs(segment, part, CONDITION, images, pairs, rows)
    counts.faults += int(np.count_nonzero(truth.fault))
    return truth.true
