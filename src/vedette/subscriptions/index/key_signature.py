"""Composite keys of the index: which fields they combine, and how they are hashed and ordered.

The writer hashes constants of subscriptions, the look-up hashes fields of documents; both use these functions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vedette.language.syntax.canonical import canonical_text
from vedette.subscriptions.index.columns import (
    DURATION,
    INT,
    TEXT,
    Bools,
    Column,
    UInts,
    build_column,
    splitmix64,
)
from vedette.subscriptions.shape import FieldPath

__all__ = ["KeySignature", "combine_hashes", "sortable_bounds"]


class KeySignature(NamedTuple):
    """The fields of a composite key, in order."""

    paths: tuple[FieldPath, ...]
    """Fields that equal a constant."""
    range_path: FieldPath | None = None
    """Field that is compared with a bound; None if the key has no bound."""
    is_lower_bound: bool = True
    """True if the field must be greater than or equal to the bound; otherwise less than or equal."""

    @property
    def is_document_key(self) -> bool:
        """True for the key of the document itself. It is looked up without the Bloom filter."""
        return self.paths == (("id",),)

    @property
    def salt(self) -> np.uint64:
        """First value of the hash, so that keys of different signatures differ."""
        text = canonical_text(("key", self.paths, self.range_path, self.is_lower_bound))
        return splitmix64(build_column([text]).hashes)[0]


def combine_hashes(hashes: UInts, column: Column) -> UInts:
    """Add one field to the hashes of composite keys."""
    with np.errstate(over="ignore"):
        return splitmix64(hashes * np.uint64(0x9E3779B97F4A7C15) + column.hashes)


def sortable_bounds(column: Column, is_lower_bound: bool) -> tuple[npt.NDArray[np.float64], Bools]:
    """Return each value as a number, and whether it can be compared at all.

    A text becomes the infinity that every value passes: texts have no exact number, so the filter decides.
    """
    # null, booleans, lists and maps have no order
    unordered = (column.kinds < INT) | (column.kinds > DURATION)
    texts = column.kinds == TEXT
    bounds = np.where(texts, -np.inf if is_lower_bound else np.inf, column.doubles)
    return bounds, ~(unordered | np.isnan(bounds))
