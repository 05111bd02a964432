"""Evaluate shapes over pairs of image and subscription: vectorized, or pair by pair."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from weakref import ref

import numpy as np

from vedette.filters.document_filter import DocumentFilter, compile_filter
from vedette.filters.inputs import FilterOutcome
from vedette.subscriptions.index.change_batch import ImageBatch
from vedette.subscriptions.index.columns import Column, Ints
from vedette.subscriptions.index.segment import Segment, ShapeGroup
from vedette.subscriptions.index.vectorized_filter import ListColumn, Program, Truth, compile_vectorized
from vedette.subscriptions.policy_view import TRUSTED_LIMITS
from vedette.subscriptions.shape import Constant, FieldPath, bind_tree
from vedette.subscriptions.spec import shape_of_spec

__all__ = ["CONDITION", "evaluate_pairs"]

CONDITION = -1
"""Index of the condition of a shape. The trees from 0 on are the masks of its attributes."""


def evaluate_pairs(
    segment: Segment, part: ShapeGroup, tree: int, images: ImageBatch, pairs: Ints, rows: Ints
) -> Truth:
    """Evaluate one tree of a shape for pairs of images and rows. Rows are counted from the first row of the shape."""
    program = _program(part.spec, tree)
    if program is not None:
        return program(_SegmentPairs(segment, part, images, pairs, rows))
    return _evaluate_one_by_one(segment, part, tree, images, pairs, rows)


def _tree(spec: bytes, tree: int) -> Any:
    """Return the condition of a shape, or one of its masks."""
    shape = shape_of_spec(spec)
    return shape.tree if tree == CONDITION else shape.attribute_masks[tree][1]


@lru_cache(maxsize=4096)
def _program(spec: bytes, tree: int) -> Program | None:
    return compile_vectorized(_tree(spec, tree))


class _SegmentPairs:
    """Pairs of images and rows of one shape. Each column is gathered once."""

    def __init__(
        self, segment: Segment, part: ShapeGroup, images: ImageBatch, pairs: Ints, rows: Ints
    ) -> None:
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
        return self._segment.constant(self._part.shape_index, index).take(self._rows)

    def list(self, index: int) -> ListColumn:
        starts = self._segment.list_starts(self._part.shape_index, index)
        counts = starts[self._rows + 1] - starts[self._rows]
        owners = np.repeat(np.arange(self.size), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.repeat(starts[self._rows], counts) + within
        return ListColumn(self._segment.constant(self._part.shape_index, index).take(places), owners)


def _evaluate_one_by_one(
    segment: Segment, part: ShapeGroup, tree: int, images: ImageBatch, pairs: Ints, rows: Ints
) -> Truth:
    """Evaluate pair by pair, for filters that cannot be vectorized."""
    true, fault = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    for place, (image, row) in enumerate(zip(pairs.tolist(), rows.tolist(), strict=True)):
        closure = _closure(part.spec, tree, _RowConstants(segment, part, row))
        outcome = closure.outcome(images.filter_environment(image))
        true[place] = outcome is FilterOutcome.MATCH
        fault[place] = outcome is FilterOutcome.FAILED
    return Truth(true, fault)


class _RowConstants:
    """The constants of one row, as the cache key of its compiled filter."""

    __slots__ = ("_part", "_segment", "_where")

    def __init__(self, segment: Segment, part: ShapeGroup, row: int) -> None:
        self._segment, self._part = ref(segment), part  # the cache must not keep a segment mapped
        self._where = (segment.serial, part.shape_index, row)

    def __hash__(self) -> int:
        return hash(self._where)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RowConstants) and self._where == other._where

    def values(self) -> tuple[Constant, ...]:
        segment = self._segment()
        assert segment is not None, "it is being asked about"
        return tuple(self._value(segment, index) for index in range(self._part.shape.constants))

    def _value(self, segment: Segment, index: int) -> Constant:
        _, place, row = self._where
        column = segment.constant(place, index)
        if not segment.is_list(place, index):
            return column.value(row)
        starts = segment.list_starts(place, index)
        return [column.value(item) for item in range(starts[row], starts[row + 1])]


@lru_cache(maxsize=10_000)
def _closure(spec: bytes, tree: int, constants: _RowConstants) -> DocumentFilter:
    return compile_filter(bind_tree(_tree(spec, tree), constants.values()), limits=TRUSTED_LIMITS)
