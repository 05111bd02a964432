"""The SQL database of the registry in PostgreSQL. An advisory lock serialises writers, so versions are ordered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import psycopg

from vedette.hashing import text_hash
from vedette.storage.postgres.errors import translate_connect_errors, translate_errors
from vedette.storage.sql_database import SqlTransaction

__all__ = ["PostgresDatabase"]


class PostgresDatabase:
    def __init__(self, address: str, tables: Sequence[str], schema: str) -> None:
        self.address = address
        self._place = psycopg.conninfo.make_conninfo(address, password="")
        self._schema, self._lock_key = schema, text_hash(schema) >> 2
        self._lock = RLock()
        self._done = False
        with translate_connect_errors(self._place):
            self._db = self._connect()
            with self._db.transaction():
                self._db.execute("SELECT pg_advisory_xact_lock(%s)", (self._lock_key,))
                self._db.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
                for table in tables:
                    text = table.replace("SERIAL", "bigserial PRIMARY KEY").replace("BLOB", "bytea")
                    self._db.execute(text.replace("INTEGER", "bigint").replace(" STRICT", ""))

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        db = psycopg.connect(self.address, autocommit=True)
        db.execute(f"SET search_path = {self._schema}")
        return db

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Return a live connection. A broken connection is discarded, and the next caller opens a new one."""
        with self._lock, translate_errors(self._place):
            if self._db.closed and not self._done:
                self._db = self._connect()
            yield self._db

    @contextmanager
    def write(self) -> Iterator[SqlTransaction]:
        with self._connection() as db, db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (self._lock_key,))
            yield _PostgresRows(db)

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        with self._connection() as db:
            yield _PostgresRows(db)

    def change_count(self) -> object:
        """A number that changes with the registry's version; reading it is one round trip."""
        with self.read() as rows:
            return rows.execute("SELECT value FROM meta WHERE key = 'version'")

    def close(self) -> None:
        with self._lock:
            self._done = True
            self._db.close()


class _PostgresRows:
    def __init__(self, db: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._db = db

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._db.execute(statement.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description is not None else []

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            with self._db.cursor() as cursor:
                cursor.executemany(statement.replace("?", "%s"), rows)
