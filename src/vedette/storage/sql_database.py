"""The SQL database of the registry: a SQLite file or a PostgreSQL schema behind one small interface.

Statements are written once, with `?` for values. Only the table definitions differ.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Protocol

from vedette.storage.sqlite.connection import transaction
from vedette.storage.sqlite.errors import translate_errors

__all__ = ["SqlDatabase", "SqlTransaction", "open_database"]

_BUSY_SECONDS = 30.0


class SqlTransaction(Protocol):
    """The statements of one transaction."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that the statement returns, if any."""
        ...

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None: ...


class SqlDatabase(Protocol):
    @property
    def address(self) -> str: ...
    def write(self) -> Any:
        """Return a context manager for one transaction without concurrent writers. It yields a SqlTransaction."""
        ...

    def read(self) -> Any: ...
    def change_count(self) -> object:
        """A value that changes after any write."""
        ...

    def close(self) -> None: ...


def open_database(address: str | Path, tables: Sequence[str], schema: str) -> SqlDatabase:
    """Open the database with its tables. In PostgreSQL they have their own schema."""
    text = str(address)
    if text.startswith(("postgresql://", "postgres://")):
        from vedette.storage.postgres.database import PostgresDatabase

        return PostgresDatabase(text, tables, schema)
    return SqliteDatabase(Path(text), tables)


class SqliteDatabase:
    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        self.address = str(path)
        self._lock = RLock()
        with translate_errors(self.address):
            self._db = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            with transaction(self._db):
                for table in tables:
                    self._db.execute(table.replace("SERIAL", "INTEGER PRIMARY KEY AUTOINCREMENT"))

    @contextmanager
    def write(self) -> Iterator[SqlTransaction]:
        with self._lock, translate_errors(self.address), transaction(self._db):
            yield _SqliteRows(self._db)

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        with self._lock, translate_errors(self.address):
            yield _SqliteRows(self._db)

    def change_count(self) -> object:
        """Changes with commits of other connections and of this one."""
        with self._lock:
            return self._db.execute("PRAGMA data_version").fetchone(), self._db.total_changes

    def close(self) -> None:
        with self._lock:
            self._db.close()


class _SqliteRows:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, values).fetchall()

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._db.executemany(statement, rows)
