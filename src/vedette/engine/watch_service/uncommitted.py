"""The view of watches with `visibility: immediate`: the committed graph plus the writes of open transactions.

Theory of operation. A statement puts the versions it wrote on top of the graph; a rollback removes them. A commit
puts the same versions into the graph, so removing them then changes nothing. Other commits (of a trigger or a
definition) change the graph and are visible where no version is on top. If two transactions write the same element,
the later version is on top. One of the two will fail to commit, and removing its version shows the one below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vedette.element import Element
from vedette.graph.overlay import Overlay
from vedette.graph.transaction import Transaction
from vedette.language.compile.union_view import ElementChange

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["UncommittedView"]


class UncommittedView:
    """The view, and the changes of each step. Call every method with the engine lock held."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._view: Overlay | None = None
        self._writers: dict[str, list[Transaction]] = {}
        """Id ▸ the open transactions that wrote it. The version of the last one is on top."""

    @property
    def view(self) -> Overlay:
        state = self._database.state
        if (
            self._view is None or self._view.base is not state.graph
        ):  # after a reload, the uncommitted versions are gone as well
            self._view = Overlay(state.graph, state.layout)
            self._writers.clear()
        return self._view

    def apply_writes(self, transaction: Transaction) -> list[ElementChange]:
        """Apply the writes of a statement or of ROLLBACK TO. Return the changes of the view."""
        view, changes = self.view, []
        for last, now in transaction.take_unpublished():
            id = (now or last).id  # type: ignore[union-attr]
            before = view.get(id)
            self._remove_version(id, transaction)
            if id in transaction.before_images:
                self._writers.setdefault(id, []).append(transaction)
                _set_version(view, id, now)
            changes.append((before, view.get(id)))
        return _different(changes)

    def visible_changes(self, changes: Sequence[ElementChange]) -> list[ElementChange]:
        """The changes of a commit that are visible. Covered elements change when `remove_writes` is called."""
        self.view  # noqa: B018 - a reloaded state has no writers
        return [(old, new) for old, new in changes if (new or old).id not in self._writers]  # type: ignore[union-attr]

    def remove_writes(self, transaction: Transaction) -> list[ElementChange]:
        """Remove the versions of a transaction that was committed or rolled back.

        Return the changes of the view.
        """
        view, changes = self.view, []
        for id in transaction.published:
            before = view.versions.get(id)
            if self._remove_version(id, transaction):
                changes.append((before, view.get(id)))
        transaction.published.clear()
        return _different(changes)

    def _remove_version(self, id: str, transaction: Transaction) -> bool:
        """Remove its version, so that the one below is visible again. Return False if it has none."""
        writers = self._writers.get(id, [])
        if transaction not in writers:
            return False
        writers.remove(transaction)
        if writers:
            _set_version(self.view, id, writers[-1].published[id])
        else:
            del self._writers[id]
            self.view.revert(id)
        return True

    def all_changes(self) -> list[ElementChange]:
        """The differences between the view and the committed graph."""
        graph = self._database.state.graph
        return _different([(graph.get(id), version) for id, version in self.view.versions.items()])

    def open_transactions(self) -> list[Transaction]:
        """Transactions that have versions in the view."""
        return list({id(each): each for writers in self._writers.values() for each in writers}.values())


def _different(changes: list[ElementChange]) -> list[ElementChange]:
    return [(before, after) for before, after in changes if before is not after]


def _set_version(view: Overlay, id: str, now: Element | None) -> None:
    if now is None:
        view.delete(id)
    else:
        view.put(now)
