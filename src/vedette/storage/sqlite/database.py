"""The SQL seam over one SQLite file. Other processes may read while one writes."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Event as Flag
from threading import RLock
from typing import Any

from vedette.storage.sql_database import TABLE_TYPES, DatabaseSchema, SqlTransaction, wrong_format
from vedette.storage.sqlite.connection import transaction
from vedette.storage.sqlite.errors import translate_errors
from vedette.storage.sqlite.rows import insert_rows, insert_statements

__all__ = ["SqliteDatabase"]

BUSY_SECONDS = 30.0
"""Seconds to wait for the write lock of another process."""
POLL_SECONDS = 0.005
"""Seconds between two checks of `wait_for_commit`. A check reads one number in shared memory."""
IDLE_POLL_SECONDS = 0.03
"""Seconds between two checks after `POLLS_UNTIL_IDLE` checks without a commit. Saves CPU time while nothing changes."""
POLLS_UNTIL_IDLE = 400
CHECKPOINT_PAGES = 8_000
"""Pages of 4 KiB in the WAL before a checkpoint. The last images of the journal are spread over the whole file: with
SQLite's default of 1,000 most pages of an append were written twice (journal append 38 µs a change, now 32)."""


class SqliteDatabase:
    """A SQLite file with the tables of a schema. One connection, shared by all threads under a lock."""

    def __init__(self, path: Path, schema: DatabaseSchema) -> None:
        self.address = self.place = str(path)
        self._lock = RLock()
        self._pause = Flag()
        self._idle_polls = 0
        with translate_errors(self.place):
            self._db = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                self._db.create_function("greatest", 2, max, deterministic=True)
                self._create_tables(schema)
            except BaseException:
                self._db.close()
                raise
        self._statements = _SqliteTransaction(self._db)

    def _create_tables(self, schema: DatabaseSchema) -> None:
        if self._format() == schema.version:
            return  # without the write lock: many processes open the same file
        with transaction(self._db):
            version = self._format()
            is_empty = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            if version != schema.version and not is_empty:
                raise wrong_format(self.place, version, schema)
            for statement in schema.tables if is_empty else ():
                self._db.execute(_table_definition(statement))
            self._db.execute(f"PRAGMA user_version = {schema.version}")

    def _format(self) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        return int(version)

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        with self._lock, translate_errors(self.place):
            yield self._statements

    @contextmanager
    def snapshot(self) -> Iterator[SqlTransaction]:
        with self._lock, translate_errors(self.place):
            self._db.execute("BEGIN")
            try:
                yield self._statements
            finally:
                self._db.execute("COMMIT")

    @contextmanager
    def write(self) -> Iterator[SqlTransaction]:
        with self._lock, translate_errors(self.place), transaction(self._db):
            yield self._statements

    def change_counter(self) -> object:
        """`data_version` counts commits of other connections, `total_changes` rows changed by this one."""
        with self._lock, translate_errors(self.place):
            return self._db.execute("PRAGMA data_version").fetchone(), self._db.total_changes

    def wait_for_commit(self, counter: object, seconds: float) -> None:
        left = seconds
        while self.change_counter() == counter:
            if left <= 0:
                return
            self._idle_polls += 1
            pause = POLL_SECONDS if self._idle_polls < POLLS_UNTIL_IDLE else IDLE_POLL_SECONDS
            self._pause.wait(min(pause, left))
            left -= pause
        self._idle_polls = 0

    def close(self) -> None:
        with self._lock, translate_errors(self.place):
            self._db.close()


class _SqliteTransaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if "= ANY(?)" in statement:
            statement = statement.replace("= ANY(?)", "IN (SELECT value FROM json_each(?))")
            values = [json.dumps(value) if isinstance(value, list) else value for value in values]
        return self._db.execute(statement, values).fetchall()

    def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._db.executemany(statement, rows)

    def bulk_insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        insert_rows(self._db, _bulk_statements(table, tuple(columns)), rows)

    def notify(self) -> None:
        """Nothing to do: waiters poll the counter of the file."""


@lru_cache
def _bulk_statements(table: str, columns: tuple[str, ...]) -> Sequence[str]:
    return insert_statements(f"{table} ({', '.join(columns)})", f"({', '.join('?' * len(columns))})")


def _table_definition(statement: str) -> str:
    return re.sub(r"\b[A-Z]+\b", lambda word: TABLE_TYPES.get(word[0], (word[0], ""))[0], statement)
