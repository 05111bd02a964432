"""A session's turn at its database's state, and the highest commit that it saw there."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["Turn"]


class Turn:
    """`with turn:` holds the database's lock. Whatever was seen, a result or an error, is told only when durable.

    So the turn remembers the last commit that was there when it ended: `seen` is what the session waits for.
    """

    __slots__ = ("_database", "_lock", "seen")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock: Lock = database.turn
        self.seen = 0

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seen = self._database.state.sequence
        self._lock.release()
