"""Read the log of a graph from its SQLite file or PostgreSQL schema, beside the engine and without a lock.

The files belong to the engine's store: this module creates no tables, checks no format and never writes. It therefore
has its own two read-only connections instead of the seam of `storage/sql_database.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import sql

from vedette.errors import SourceError
from vedette.storage.names import encode_name
from vedette.storage.sqlite.pending import decode_pending, pending_journal_rows

__all__ = ["GraphLog", "GraphRow", "open_graph_log"]


class GraphRow(NamedTuple):
    """One change of the graph, as stored in its log."""

    offset: int
    collection: str
    key: str
    before: bytes | None
    after: bytes | None
    time_ms: int
    transaction: str


class GraphLog(Protocol):
    """The log of one graph. Methods raise E6104 if it cannot be read."""

    def snapshot(self) -> Any:
        """Return a context manager. Everything read inside it is consistent; the other methods work only inside it."""
        ...

    def counter(self, name: str) -> int:
        """Return the value of a named counter; 0 if it does not exist."""
        ...

    def last_offset(self) -> int:
        """Return the last offset of the committed tables, without pending batches."""
        ...

    def definitions(self) -> tuple[str, ...]: ...

    def nodes(self) -> Sequence[tuple[str, str, bytes]]:
        """Return id, type and image of each node."""
        ...

    def rows(self, after: int, limit: int) -> list[GraphRow]: ...

    def close(self) -> None: ...


def open_graph_log(address: str, database: str) -> GraphLog:
    """Open a data directory, a database file, or a PostgreSQL URL."""
    if address.startswith(("postgresql://", "postgres://")):
        return PostgresGraph(address, database)
    path = Path(address)
    return SqliteGraph(path / "databases" / f"{encode_name(database)}.sqlite" if path.is_dir() else path)


class SqliteGraph:
    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SourceError(
                "E6104",
                f"{path} does not exist: give the path of a data directory or of a database file",
                fields={"place": str(path)},
            )
        self._place = str(path)
        self._db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA query_only = ON")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")
        except sqlite3.Error as problem:
            raise _unreadable(self._place, problem) from problem

    def counter(self, name: str) -> int:
        row = self._db.execute("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", (name,)).fetchone()
        return int(row[0]) if row is not None else 0

    def last_offset(self) -> int:
        (last,) = self._db.execute('SELECT coalesce(max("offset"), 0) FROM journal').fetchone()
        return max(int(last), self.counter("store.first") - 1)  # the log may be empty after a trim

    def definitions(self) -> tuple[str, ...]:
        return tuple(text for (text,) in self._db.execute("SELECT text FROM definitions ORDER BY position"))

    def nodes(self) -> Sequence[tuple[str, str, bytes]]:
        return self._db.execute(
            "SELECT id, type, CAST(attributes AS BLOB) FROM elements WHERE targets IS NULL"
        ).fetchall()

    def rows(self, after: int, limit: int) -> list[GraphRow]:
        """Return rows of the log, then those of batches that are durable but not applied yet
        (`storage/sqlite/pending.py`).
        """
        found = self._db.execute(
            'SELECT "offset", collection, key, CAST(before AS BLOB), CAST(after AS BLOB), time_ms, "transaction"'
            ' FROM journal WHERE "offset" > ? ORDER BY "offset" LIMIT ?',
            (after, limit),
        )
        rows = list(map(GraphRow._make, found))
        if len(rows) < limit:
            last = rows[-1].offset if rows else after
            kept = pending_journal_rows(
                [
                    decode_pending(batch)
                    for (batch,) in self._db.execute("SELECT batch FROM pending ORDER BY number")
                ]
            )
            later = [
                GraphRow(
                    row.offset, row.collection, row.key, row.before, row.after, row.time_ms, row.transaction
                )
                for row in kept
                if row.offset > last
            ]
            rows += later[: limit - len(rows)]
        return rows

    def close(self) -> None:
        self._db.close()


class PostgresGraph:
    def __init__(self, address: str, database: str) -> None:
        self._address, self._database = address, database
        self._place = psycopg.conninfo.make_conninfo(address, password="")
        self._db: psycopg.Connection[tuple[Any, ...]] | None = None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        try:
            if self._db is None or self._db.closed:
                self._db = psycopg.connect(self._address, autocommit=True, application_name="vedette")
            with self._db.transaction():
                self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                self._enter()
                yield
        except psycopg.Error as problem:
            raise _unreadable(self._place, problem) from problem

    def _enter(self) -> None:
        """Select the schema of the database for the duration of the transaction."""
        found = self._rows("SELECT schema FROM vedette.databases WHERE name = %s", self._database)
        if not found:
            text = f"{self._place} has no graph database {self._database}"
            raise SourceError("E6104", text, fields={"place": self._place})
        self._rows("SELECT set_config('search_path', quote_ident(%s), true)", found[0][0])

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        assert self._db is not None, "call only inside a snapshot"
        return self._db.execute(sql.SQL(statement), values).fetchall()

    def counter(self, name: str) -> int:
        found = self._rows("SELECT value::bigint FROM meta WHERE key = %s", name)
        return int(found[0][0]) if found else 0

    def last_offset(self) -> int:
        ((last,),) = self._rows('SELECT coalesce(max("offset"), 0) FROM journal')
        return max(int(last), self.counter("store.first") - 1)

    def definitions(self) -> tuple[str, ...]:
        return tuple(text for (text,) in self._rows("SELECT text FROM definitions ORDER BY position"))

    def nodes(self) -> Sequence[tuple[str, str, bytes]]:
        found = self._rows("SELECT id, type, attributes FROM elements WHERE targets IS NULL")
        return [(id, type_, image.encode()) for id, type_, image in found]

    def rows(self, after: int, limit: int) -> list[GraphRow]:
        found = self._rows(
            'SELECT "offset", collection, key, before, after, time_ms, "transaction" FROM journal'
            ' WHERE "offset" > %s ORDER BY "offset" LIMIT %s',
            after,
            limit,
        )
        return [
            GraphRow._make(
                (*row[:3], *(None if image is None else image.encode() for image in row[3:5]), *row[5:])
            )
            for row in found
        ]

    def close(self) -> None:
        if self._db is not None:
            self._db.close()


def _unreadable(place: str, problem: Exception) -> SourceError:
    text = f"the graph at {place} cannot be read ({' '.join(str(problem).split())})"
    return SourceError("E6104", text, fields={"place": place})
