"""The engine lock as a session holds it, and the latest commit it has observed."""

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
    """`with lock_scope:` holds the engine lock. Results and errors are released only when what they observed is
    durable.

    On exit the scope records the current sequence as `observed_sequence`. The session waits until the log writer of
    the same state has made it durable. After a failed flush the database has another state and another log writer.
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
        """Acquire and release the lock once: everything committed so far counts as observed."""
        with self:
            return self
