"""The SQL seam over one PostgreSQL schema, for pipelines and sources on several hosts.

An advisory lock serializes writers. Without it, a transaction with a smaller journal offset could commit after one
with a larger offset, and a reader of offset ranges would miss it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from typing import Any

import psycopg

from vedette.hashing import text_hash
from vedette.storage.postgres.errors import translate_connect_errors, translate_errors
from vedette.storage.sql_database import TABLE_TYPES, DatabaseSchema, SqlTransaction, wrong_format

__all__ = ["PostgresDatabase"]


class PostgresDatabase:
    """The tables of a schema in a PostgreSQL database. One connection, shared by all threads under a lock.

    The call during which the connection breaks raises StoreError. The next call opens a new connection.
    """

    def __init__(self, address: str, schema: DatabaseSchema) -> None:
        self.address = address
        self.place = psycopg.conninfo.make_conninfo(address, password="")
        self._schema, self._lock_key = schema, text_hash(schema.name) >> 2
        self._lock = RLock()
        self._closed = False
        with translate_connect_errors(self.place):
            self._db = self._connect()
            try:
                self._create_tables()
            except BaseException:
                self._db.close()
                raise

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        db = psycopg.connect(self.address, autocommit=True)
        db.execute(f"SET search_path = {self._schema.name}")
        if self._schema.notifies:
            db.execute(f"LISTEN {self._schema.name}")
        return db

    def _create_tables(self) -> None:
        schema = self._schema
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (self._lock_key,))
            self._db.execute(f"CREATE SCHEMA IF NOT EXISTS {schema.name}")
            version = self._format()
            if version is None:
                for statement in (*schema.tables, "CREATE TABLE format (version INTEGER NOT NULL)"):
                    self._db.execute(_table_definition(statement))
                self._db.execute("INSERT INTO format VALUES (%s)", (schema.version,))
            elif version != schema.version:
                raise wrong_format(f"the schema {schema.name} of {self.place}", version, schema)

    def _format(self) -> int | None:
        """Return the format version, 0 for tables without a version, or None if there is no table."""
        tables = self._db.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (self._schema.name,)
        ).fetchall()
        if ("format",) not in tables:
            return 0 if tables else None
        row = self._db.execute("SELECT version FROM format").fetchone()
        return int(row[0]) if row is not None else 0

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Return a live connection. A broken connection is discarded, and the next caller opens a new one."""
        with self._lock, translate_errors(self.place):
            if self._db.closed and not self._closed:
                self._db = self._connect()
            yield self._db

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        with self._connection() as db:
            yield _PostgresTransaction(db, self._schema)

    @contextmanager
    def snapshot(self) -> Iterator[SqlTransaction]:
        with self._connection() as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _PostgresTransaction(db, self._schema)

    @contextmanager
    def write(self) -> Iterator[SqlTransaction]:
        with self._connection() as db, db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (self._lock_key,))
            yield _PostgresTransaction(db, self._schema)

    def change_counter(self) -> object:
        """Read the counter row of the schema: one round trip."""
        with self.read() as transaction:
            return transaction.execute("SELECT value FROM meta WHERE key = ?", (self._schema.counter,))

    def wait_for_commit(self, counter: object, seconds: float) -> None:
        """Returns early for a notification that arrived before the call."""
        if self.change_counter() != counter:
            return
        with self._connection() as db:
            for _ in db.notifies(timeout=seconds, stop_after=1):
                pass

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._db.close()


class _PostgresTransaction:
    def __init__(self, db: psycopg.Connection[tuple[Any, ...]], schema: DatabaseSchema) -> None:
        self._db, self._schema = db, schema

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._db.execute(_statement(statement), values, binary=True)
        return cursor.fetchall() if cursor.description is not None else []

    def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            with self._db.cursor() as cursor:
                cursor.executemany(_statement(statement), rows)

    def bulk_insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            with self._db.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)

    def notify(self) -> None:
        self._db.execute(f"NOTIFY {self._schema.name}")


@lru_cache(maxsize=512)
def _statement(text: str) -> str:
    return text.replace("%", "%%").replace("?", "%s")


def _table_definition(statement: str) -> str:
    text = statement.replace(", WITHOUT ROWID", "").replace(" STRICT", "")
    return re.sub(r"\b[A-Z]+\b", lambda word: TABLE_TYPES.get(word[0], ("", word[0]))[1], text)
