"""Explicit transactions of a session: isolation, savepoints, and bindings that roll back with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vedette.element import Element, View
from vedette.errors import TransactionError
from vedette.graph.overlay import Overlay
from vedette.graph.transaction import Transaction
from vedette.queue.entry import Delivery

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session.session import Session

__all__ = ["OpenTransaction", "ReadRecorder"]


class OpenTransaction:
    """BEGIN … COMMIT.

    READ COMMITTED reads the latest committed state; SERIALIZABLE a snapshot, checked at COMMIT.
    """

    def __init__(self, database: Database, *, serializable: bool, bindings: dict[str, str]) -> None:
        state = database.state
        self.serializable = serializable
        self.base_sequence = state.sequence
        self.tick = state.tick
        self.now = database.statement_time()
        self.abort_reason: str | None = None
        """If set, only ROLLBACK is accepted, for this reason."""
        self.causes: list[str] = []
        self.enlisted_deliveries: list[Delivery] = []
        """Deliveries whose elements it deletes: finished at COMMIT, pending again after ROLLBACK."""
        self._snapshot: Overlay | None = state.open_snapshot() if serializable else None
        self.reads = ReadRecorder(self._snapshot) if self._snapshot is not None else None
        self.transaction: Transaction = state.begin(self.reads)
        self._bindings = dict(bindings)
        self._savepoints: dict[str, tuple[dict[str, str], int]] = {}
        """Name ▸ the bindings and the number of enlisted deliveries at that time."""

    def check_usable(self) -> None:
        """Raise if the transaction is aborted. Check again with the lock held, because others may abort it."""
        if self.abort_reason is not None:
            text = f"The transaction is aborted ({self.abort_reason}): only ROLLBACK is accepted"
            raise TransactionError("E5005", text)

    def savepoint(self, name: str, bindings: dict[str, str]) -> None:
        self.transaction.savepoint(name)
        self._savepoints[name] = (dict(bindings), len(self.enlisted_deliveries))

    def rollback_to(self, name: str, session: Session) -> None:
        self.transaction.rollback_to(name)
        bindings, acknowledged = self._savepoints[name]
        session.bindings = dict(bindings)
        session.database.watching.consuming.settlement.restore_pending(
            self.enlisted_deliveries[acknowledged:]
        )
        del self.enlisted_deliveries[acknowledged:]

    def view_on(self, snapshot: Overlay) -> View:
        """What the transaction sees on top of a snapshot. SERIALIZABLE has its own snapshot."""
        return self.transaction.view if self.serializable else self.transaction.view.rebased(snapshot)

    def check_reads(self) -> None:
        """SERIALIZABLE: raise if anything that was read has changed since."""
        if self.reads is not None and self._snapshot is not None and self.reads.has_conflict(self._snapshot):
            text = "Another transaction changed what this one has read: it is rolled back, try it again"
            raise TransactionError("E5002", text)

    def end(self, session: Session, *, committed: bool = False) -> None:
        """Release the snapshot and, unless committed, undo bindings and enlisted deliveries.

        Call with the lock held.
        """
        if self._snapshot is not None:
            session.database.state.close_snapshot(self._snapshot)
        if not committed:
            session.bindings = self._bindings
            session.database.watching.consuming.settlement.restore_pending(self.enlisted_deliveries)
            session.database.watching.retract_uncommitted(self.transaction)
        session.transaction = None


class ReadRecorder:
    """A view that records reads, so that COMMIT can check whether they are still valid."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._ids: set[str] = set()
        self._types: set[str] = set()
        self._keys: set[tuple[str, str, Any]] = set()
        self._ends: set[tuple[str, int, str]] = set()
        self._incident: set[str] = set()

    def get(self, id: str) -> Element | None:
        self._ids.add(id)
        return self._view.get(id)

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        self._types.update(types)
        return self._view.scan(types)

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        self._keys.add((owner, attribute, value))
        return self._view.lookup(owner, attribute, value)

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        self._ends.add((edge, position, id))
        return self._view.edges_at(edge, position, id)

    def incident(self, id: str) -> Iterable[Element]:
        self._incident.add(id)
        return self._view.incident(id)

    def has_conflict(self, snapshot: Overlay) -> bool:
        """True if a commit since the snapshot changed anything that was read."""
        graph = snapshot.base
        for id, before in snapshot.versions.items():
            after = graph.get(id)
            if before is after:
                continue
            if id in self._ids or any(self._covers(e, snapshot) for e in (before, after) if e is not None):
                return True
        return False

    def _covers(self, element: Element, snapshot: Overlay) -> bool:
        if element.type in self._types:
            return True
        for owner, attribute, value in self._keys:
            place = snapshot.layout.attributes[owner, attribute].get(element.type)
            if place is not None and element.values[place] == value:
                return True
        targets = element.targets or ()
        return any(
            (element.type, position, id) in self._ends or id in self._incident
            for position, id in enumerate(targets)
        )
