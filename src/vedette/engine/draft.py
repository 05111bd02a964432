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
from vedette.language.affected import Difference

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["Draft"]


class Draft:
    """A view, and what each step changes in it. Called with the turn held."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._view: Overlay | None = None
        self._writers: dict[str, Transaction] = {}
        """Id ▸ the transaction whose version lies over the graph."""

    @property
    def view(self) -> Overlay:
        state = self._database.state
        if (
            self._view is None or self._view.base is not state.graph
        ):  # a state that was lost takes its drafts along
            self._view = Overlay(state.graph, state.layout)
            self._writers.clear()
        return self._view

    def written(self, transaction: Transaction) -> list[Difference]:
        """A statement has written, or a savepoint was rolled back to."""
        view, changes = self.view, []
        for last, now in transaction.unseen():
            id = (now or last).id  # type: ignore[union-attr]
            before = view.get(id)
            if id in transaction.before:
                self._writers[id] = transaction
                _lay(view, id, now)
            elif self._writers.get(id) is transaction:  # taken back: nothing of it lies here any more
                del self._writers[id]
                view.restore(id)
            changes.append((before, view.get(id)))
        return [(before, after) for before, after in changes if before is not after]

    def landed(self, changes: Sequence[Difference]) -> list[Difference]:
        """A commit changed the graph below: what of it shows. What lies over it is for `ended` to lift off."""
        self.view  # noqa: B018 - a new state has no writers
        return [(old, new) for old, new in changes if (new or old).id not in self._writers]  # type: ignore[union-attr]

    def ended(self, transaction: Transaction) -> list[Difference]:
        """The transaction was committed or rolled back: what it wrote is in the graph now, or never was."""
        view, changes = self.view, []
        for id in transaction.shown:
            if self._writers.get(id) is transaction:
                del self._writers[id]
                before = view.hidden[id]
                view.restore(id)
                changes.append((before, view.get(id)))
        transaction.shown.clear()
        return [(before, after) for before, after in changes if before is not after]

    def open(self) -> list[Transaction]:
        """Transactions that have something lying here."""
        return list({id(writer): writer for writer in self._writers.values()}.values())


def _lay(view: Overlay, id: str, now: Element | None) -> None:
    if now is None:
        view.drop(id)
    else:
        view.put(now)
