"""Requests of other processes to the owner of the queue: the table `queue_requests` in `handshake.db`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from vedette.handshake.tables.schema import APPLICATION_ID, MIGRATIONS
from vedette.storage.sqlite.shared_file import SharedFile
from vedette.values import timestamp_to_text

__all__ = ["QueueRequest", "QueueRequests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    id: int
    verb: str
    argument: str | None


class QueueRequests:
    """Used by any number of threads and processes; one of them, the owner, answers."""

    def __init__(self, path: Path) -> None:
        self._file = SharedFile(path, APPLICATION_ID, MIGRATIONS)

    def close(self) -> None:
        self._file.close()

    def ask(self, verb: str, argument: str | None, now: datetime) -> int:
        """Add a request. Returns its number."""
        with self._file.write_transaction() as db:
            values = (verb, argument, timestamp_to_text(now))
            asked = db.execute(
                "INSERT INTO queue_requests (verb, argument, requested_at) VALUES (?, ?, ?)", values
            )
            assert asked.lastrowid is not None
            return asked.lastrowid

    def asked(self) -> list[QueueRequest]:
        """Unanswered requests, oldest first."""
        with self._file.read_transaction() as db:
            found = db.execute(
                "SELECT id, verb, argument FROM queue_requests WHERE answer IS NULL ORDER BY id"
            )
            return [QueueRequest(id=id, verb=verb, argument=argument) for id, verb, argument in found]

    def answer(self, id: int, text: str) -> None:
        with self._file.write_transaction() as db:
            db.execute("UPDATE queue_requests SET answer = ? WHERE id = ?", (text, id))

    def take_answer(self, id: int) -> str | None:
        """Return the answer once and delete the request."""
        with self._file.read_transaction() as db:
            found = db.execute("SELECT answer FROM queue_requests WHERE id = ?", (id,)).fetchone()
        if found is not None and found[0] is not None:
            self.withdraw(id)
            return str(found[0])
        return None

    def withdraw(self, id: int) -> None:
        """Cancel a request that is not answered yet."""
        with self._file.write_transaction() as db:
            db.execute("DELETE FROM queue_requests WHERE id = ?", (id,))

    def foreign_version(self) -> int:
        """Changes after a write by another process or connection."""
        return self._file.data_version()
