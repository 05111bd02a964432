"""The result of a statement."""

from __future__ import annotations

from typing import Any

from vedette.graph.transaction import ChangeCounts

__all__ = ["Result"]


class Result(ChangeCounts):
    """Counts of changes, rows, and warnings.

    `created`, `modified` and `deleted` count nodes (`modified` also edges), `linked` and `unlinked` edges.
    """

    __slots__ = (
        "columns",
        "handle",
        "rows",
        "tick",
        "warnings",
    )

    def __init__(
        self,
        *,
        columns: tuple[str, ...] = (),
        rows: list[tuple[Any, ...]] | None = None,
        warnings: tuple[str, ...] = (),
        handle: str | None = None,
        tick: int | None = None,
    ) -> None:
        self.columns = columns
        self.rows: list[tuple[Any, ...]] = rows if rows is not None else []
        """Tuples in the order of `columns`."""
        self.created = self.modified = self.deleted = self.linked = self.unlinked = 0
        self.warnings = warnings
        self.handle = handle
        """The id of the watch that the statement created."""
        self.tick = tick
        """The tick of the statement's commit, if it committed."""

    def __repr__(self) -> str:
        counts = [
            f"{name}={getattr(self, name)}"
            for name in ("created", "modified", "deleted", "linked", "unlinked")
            if getattr(self, name)
        ]
        table = [f"columns={list(self.columns)}", f"rows={len(self.rows)}"] if self.columns else []
        return f"Result({', '.join(counts + table)})"
