"""A SQLite file that several processes read and write: WAL, migrations, short transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from vedette.errors import StoreError
from vedette.storage.sqlite.connection import connect, transaction
from vedette.storage.sqlite.errors import translate_errors
from vedette.storage.sqlite.migrations import Migration, pending_migrations

__all__ = ["SharedFile"]


class SharedFile:
    """One connection, used by one thread at a time. The file is created if it does not exist.

    Unlike an engine's store it has no lock of its own: a writer takes SQLite's write lock for one transaction (`BEGIN
    IMMEDIATE`), so that a decision and the data it is based on are consistent.
    """

    def __init__(self, path: Path, application_id: int, migrations: tuple[Migration, ...]) -> None:
        self.path, self.place = path, str(path)
        self._lock = RLock()
        with translate_errors(self.place):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db: sqlite3.Connection | None = connect(path, "rwc")
            try:
                self._prepare(self._db, application_id, migrations)
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def write_transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Run one transaction.

        With `durable` it is on disk when the block ends; otherwise a power failure may lose the last transactions.
        """
        with self._lock, translate_errors(self.place):
            db = self._require_open()
            if durable:
                db.execute("PRAGMA synchronous = FULL")
            try:
                with transaction(db):
                    yield db
            finally:
                if durable:
                    db.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Read committed data of one snapshot."""
        with self._lock, translate_errors(self.place):
            db = self._require_open()
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.execute("COMMIT")

    def data_version(self) -> int:
        """A number that changes when another process or connection has committed."""
        with self._lock, translate_errors(self.place):
            (version,) = self._require_open().execute("PRAGMA data_version").fetchone()
            return int(version)

    def close(self) -> None:
        """Idempotent."""
        with self._lock, translate_errors(self.place):
            if self._db is not None:
                self._db.close()
            self._db = None

    def _prepare(
        self, db: sqlite3.Connection, application_id: int, migrations: tuple[Migration, ...]
    ) -> None:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        with transaction(db):  # another process created the file meanwhile
            self._migrate(db, application_id, migrations)
        db.execute("PRAGMA synchronous = NORMAL")

    def _migrate(
        self, db: sqlite3.Connection, application_id: int, migrations: tuple[Migration, ...]
    ) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if (version or tables or application) and application != application_id:
            raise StoreError(
                "E6004",
                f"{self.place} is a database of another program: move the file away; nothing was changed",
                fields={"place": self.place},
            )
        for step in pending_migrations(version, migrations, self.place):
            for statement in step.statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {step.version}")
        db.execute(f"PRAGMA application_id = {application_id}")

    def _require_open(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError("E6005", f"{self.place} is closed: open it again", fields={"place": self.place})
        return self._db
