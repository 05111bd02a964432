"""A batch of changes of one collection. The before image and the after image of a change are one row each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vedette.filters.inputs import FilterInput
from vedette.subscriptions.index.columns import Bools, Column, Ints, build_column, extract_field
from vedette.subscriptions.shape import FieldPath

__all__ = ["DocumentChange", "ImageBatch"]


class DocumentChange(NamedTuple):
    """One change, decoded once for all shapes."""

    offset: int
    key: str
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ImageBatch:
    """The images of a batch. Columns are built when a shape first needs a field."""

    def __init__(self, tenant: str, collection: str, changes: Sequence[DocumentChange]) -> None:
        self.tenant, self.collection = tenant, collection
        self.changes = changes
        count = len(changes)
        there = np.empty((count, 2), np.bool_)
        there[:, 0] = [change.before is not None for change in changes]
        there[:, 1] = [change.after is not None for change in changes]
        rows = np.flatnonzero(there)
        self.change: Ints = rows >> 1
        self.after: Bools = (rows & 1).astype(np.bool_)
        """True if the row is the image after the change."""
        self.is_current_image: Bools = self.after | ~there[self.change, 1]
        """True if this row also represents the change itself, for filters on the operation or its fields."""
        self.offsets: Ints = np.array([change.offset for change in changes], np.int64)[self.change]
        self._numbers: list[int] = self.change.tolist()
        self._documents = [image for change in changes for image in change[3:] if image is not None]
        self._columns: dict[FieldPath, Column] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def field(self, path: FieldPath) -> Column:
        column = self._columns.get(path)
        if column is None:
            column = self._columns[path] = build_column(self._values(path))
        return column

    def _values(self, path: FieldPath) -> Sequence[Any]:
        root, *names = path
        match root:
            case "doc":
                return extract_field(self._documents, names)
            case "before":
                return extract_field([self.changes[n].before for n in self._numbers], names)
            case "id":
                return [self.changes[n].key for n in self._numbers]
            case "op":
                return [self.changes[n].op for n in self._numbers]
        return [self.collection] * len(self._numbers)

    def filter_environment(self, row: int) -> FilterInput:
        """Return a row as the input of a compiled filter."""
        change = self.changes[self._numbers[row]]
        return FilterInput(
            doc=self._documents[row],
            id=change.key,
            collection=self.collection,
            op=change.op,
            before=change.before,
        )
