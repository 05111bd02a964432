"""Changes of one collection as rows to be looked up: an image before and an image after each make a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vedette.language.documents import Environment
from vedette.subscriptions.columns import Bools, Column, Ints, column_of, extract
from vedette.subscriptions.shapes import FieldPath

__all__ = ["DocumentChange", "ImageRows"]


class DocumentChange(NamedTuple):
    """One change as matching sees it: decoded once, for all shapes."""

    offset: int
    key: str
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ImageRows:
    """Rows of images; columns are made when a shape first asks for a field."""

    def __init__(self, tenant: str, collection: str, changes: Sequence[DocumentChange]) -> None:
        self.tenant, self.collection = tenant, collection
        self.changes = changes
        rows = [
            (number, side)
            for number, change in enumerate(changes)
            for side, image in enumerate((change.before, change.after))
            if image is not None
        ]
        self.change: Ints = np.array([number for number, _ in rows], np.int64)
        self.after: Bools = np.array([side for _, side in rows], np.bool_)
        """Whether the row is the image after the change."""
        self.subject: Bools = np.array([side == 1 or changes[n].after is None for n, side in rows], np.bool_)
        """Whether the row is the one that a filter about the change itself is asked of."""
        self.offsets: Ints = np.array([changes[number].offset for number, _ in rows], np.int64)
        self._rows = rows
        self._documents = [changes[n].after if side else changes[n].before for n, side in rows]
        self._columns: dict[FieldPath, Column] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def field(self, path: FieldPath) -> Column:
        column = self._columns.get(path)
        if column is None:
            column = self._columns[path] = column_of(self._values(path))
        return column

    def _values(self, path: FieldPath) -> Sequence[Any]:
        root, *names = path
        match root:
            case "doc":
                return extract(self._documents, names)
            case "before":
                return extract([self.changes[n].before for n, _ in self._rows], names)
            case "id":
                return [self.changes[n].key for n, _ in self._rows]
            case "op":
                return [self.changes[n].op for n, _ in self._rows]
        return [self.collection] * len(self._rows)

    def environment(self, row: int) -> Environment:
        """The same row for the closures."""
        change = self.changes[self._rows[row][0]]
        return Environment(
            doc=self._documents[row],
            id=change.key,
            collection=self.collection,
            op=change.op,
            before=change.before,
        )
