"""What watches with `visibility: immediate` see: the committed graph with whatever open transactions have written.

Theory of operation. A statement lays what it wrote over the graph; the way back lifts it off again. A commit puts the
same versions into the graph below, so lifting them off then changes nothing. Whoever else commits (a trigger, a
definition) changes the graph below, and is seen wherever nothing lies over it. When two transactions write the same
element the later version lies on top; one of the two will not be committed, and its way back shows what is below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vedette.element import Element
from vedette.graph.overlay import Overlay
from vedette.graph.transaction import Transaction
from vedette.language.compile.affected_matches import ElementChange

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["UncommittedView"]


class UncommittedView:
    """A view, and what each step changes in it. Called with the turn held."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._view: Overlay | None = None
        self._writers: dict[str, list[Transaction]] = {}
        """Id ▸ the open transactions that wrote it; the version of the last one lies on top."""

    @property
    def view(self) -> Overlay:
        state = self._database.state
        if (
            self._view is None or self._view.base is not state.graph
        ):  # a state that was lost takes its drafts along
            self._view = Overlay(state.graph, state.layout)
            self._writers.clear()
        return self._view

    def apply_writes(self, transaction: Transaction) -> list[ElementChange]:
        """A statement has written, or a savepoint was rolled back to."""
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
        """A commit changed the graph below: what of it shows. What lies over it is for `ended` to lift off."""
        self.view  # noqa: B018 - a new state has no writers
        return [(old, new) for old, new in changes if (new or old).id not in self._writers]  # type: ignore[union-attr]

    def remove_writes(self, transaction: Transaction) -> list[ElementChange]:
        """The transaction was committed or rolled back: what it wrote is in the graph now, or never was."""
        view, changes = self.view, []
        for id in transaction.published:
            before = view.versions.get(id)
            if self._remove_version(id, transaction):
                changes.append((before, view.get(id)))
        transaction.published.clear()
        return _different(changes)

    def _remove_version(self, id: str, transaction: Transaction) -> bool:
        """Take its version away; what lies below shows again. False when it has none here."""
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
        """Everything that lies over the graph."""
        graph = self._database.state.graph
        return _different([(graph.get(id), version) for id, version in self.view.versions.items()])

    def open_transactions(self) -> list[Transaction]:
        """Transactions that have something lying here."""
        return list({id(each): each for writers in self._writers.values() for each in writers}.values())


def _different(changes: list[ElementChange]) -> list[ElementChange]:
    return [(before, after) for before, after in changes if before is not after]


def _set_version(view: Overlay, id: str, now: Element | None) -> None:
    if now is None:
        view.delete(id)
    else:
        view.put(now)
