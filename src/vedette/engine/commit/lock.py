"""A session's turn at its database's state, and the highest commit that it saw there."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vedette.errors import VedetteError

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.state.graph_state import Commit, GraphState
    from vedette.storage.group_commit import LogWriter

__all__ = ["LockScope"]


class LockScope:
    """`with turn:` holds the database's lock. Whatever was seen, a result or an error, is told only when durable.

    So the turn remembers the last commit that was there when it ended: `seen` is what the session waits for, at the
    gate of the state in which it was seen. After a failed flush the database has another state and another gate.
    """

    __slots__ = ("_database", "_lock", "_state", "log_writer", "observed_sequence")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock: Lock = database.lock
        self._state: GraphState = database.state
        self.log_writer: LogWriter[Commit] = database.log_writer
        self.observed_sequence = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._state, self.log_writer = self._database.state, self._database.log_writer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None and not issubclass(kind, VedetteError):
                self._database.repair_interrupted_commit()
            self.observed_sequence = self._state.sequence
        finally:
            self._lock.release()

    def observe(self) -> Self:
        """The turn, over already: everything that is there now was seen."""
        with self:
            return self
