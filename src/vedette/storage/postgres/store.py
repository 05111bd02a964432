"""A store in one schema of a PostgreSQL database.

Every append first locks the meta row `store.batch`. This serializes appends of all processes, so offsets become visible
in order: a reader that has seen an offset never sees a smaller one appear later.

If a connection breaks during COMMIT, its outcome is unknown. Each append therefore stores its name, "<boot>.<number>",
in `store.batch`. A retry uses a new connection and locks this row first, which waits until the lost transaction has
ended. If the row then has the name of the append, the lost transaction was committed, and nothing is written again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

import psycopg
from psycopg import sql

from vedette.errors import StoreError
from vedette.storage.meta import (
    BOOT_KEY,
    FIRST_OFFSET_KEY,
    LAST_BATCH_KEY,
    SEQUENCE_KEY,
    parse_info,
    sequence_went_back,
    store_corrupt,
    validate_meta_keys,
    writer_fenced,
)
from vedette.storage.meta import journal_trimmed as trimmed_away
from vedette.storage.postgres.connections import Connection, ConnectionPool
from vedette.storage.postgres.errors import is_connection_lost, translate_errors
from vedette.storage.seam import Batch, ElementRecord, JournalRow, StoreInfo

__all__ = ["PostgresStore"]

RETRY_AFTER_SECONDS = (0.0, 0.2, 1.0, 3.0)
"""Delays between retries of an append after the connection broke, in seconds. Together they cover a server restart."""
TRIM_CHUNK_ROWS = 10_000
SCAN_ROWS = 10_000
COPY_ROWS = 256

_STATEMENTS: Final = {
    "lock": "SELECT value FROM {schema}.meta WHERE key = 'store.batch' FOR UPDATE",
    "all meta": "SELECT key, value FROM {schema}.meta",
    "store meta": "SELECT key, value FROM {schema}.meta WHERE key LIKE 'store.%'",
    "unset": "DELETE FROM {schema}.meta WHERE key = ANY(%b::text[])",
    "set": """INSERT INTO {schema}.meta (key, value) SELECT * FROM unnest(%b::text[], %b::text[])
        ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
    "definitions": "SELECT text FROM {schema}.definitions ORDER BY position",
    "define": "INSERT INTO {schema}.definitions (text) VALUES (%s)",
    "delete": "DELETE FROM {schema}.elements WHERE id = ANY(%b::text[])",
    "put": """INSERT INTO {schema}.elements (id, type, attributes, targets)
        SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[])
        ON CONFLICT (id) DO UPDATE SET type = excluded.type, attributes = excluded.attributes,
            targets = excluded.targets""",
    "copy journal": """COPY {schema}.journal (tick, transaction, collection, key, before, after, time_ms, cause,
        source, partition, seq, event_id) FROM STDIN""",
    "append once": """INSERT INTO {schema}.journal (tick, transaction, collection, key, before, after, time_ms, cause,
        source, partition, seq, event_id)
        SELECT * FROM unnest(%b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[],
            %b::text[], %b::text[], %b::integer[], %b::bigint[], %b::text[])
        ON CONFLICT (source, event_id) WHERE event_id IS NOT NULL DO NOTHING""",
    "last offset": """SELECT coalesce(max("offset"),
        (SELECT value::bigint - 1 FROM {schema}.meta WHERE key = 'store.first')) FROM {schema}.journal""",
    "read": """SELECT tick, transaction, collection, key, before, after, time_ms, cause, source, partition, seq,
        event_id, "offset" FROM {schema}.journal WHERE "offset" > %s ORDER BY "offset" LIMIT %s""",
    "nodes": "SELECT id, type, attributes FROM {schema}.elements WHERE targets IS NULL",
    "edges": "SELECT id, type, attributes, targets FROM {schema}.elements WHERE targets IS NOT NULL ORDER BY created",
    "first kept offset": 'SELECT "offset" FROM {schema}.journal WHERE time_ms >= %s ORDER BY "offset" LIMIT 1',
    "last trimmed offset": """SELECT max("offset") FROM
        (SELECT "offset" FROM {schema}.journal WHERE "offset" < %s ORDER BY "offset" LIMIT %s) AS old""",
    "trim": 'DELETE FROM {schema}.journal WHERE "offset" <= %s',
}


class PostgresStore:
    """One database in the existing schema `schema`; see vedette.storage.postgres.catalog."""

    def __init__(self, connections: ConnectionPool, schema: str, place: str) -> None:
        self.place = place
        self.closed = False
        self._connections = connections
        self._boot: int | None = None
        self._number = 0
        self._lock = Lock()
        name = sql.Identifier(schema)
        # psycopg would compose an sql.SQL object at every execution; bytes are used as they are.
        self._sql = {key: sql.SQL(text).format(schema=name).as_bytes() for key, text in _STATEMENTS.items()}

    def open_for_writing(self) -> StoreInfo:
        with self._lock, self._connection() as db, db.transaction():
            meta = self._lock_meta(db)
            self._boot, self._number = int(meta[BOOT_KEY]) + 1, 0
            values = [(BOOT_KEY, str(self._boot)), (LAST_BATCH_KEY, f"{self._boot}.0")]
            db.execute(self._sql["set"], _columns(values))
        return self.info()

    def info(self) -> StoreInfo:
        with self._connection() as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            meta = dict(db.execute(self._sql["all meta"]).fetchall())
            definitions = [text for (text,) in db.execute(self._sql["definitions"])]
        return parse_info(meta, definitions, self.place)

    def elements(self) -> Iterator[ElementRecord]:
        with self._connection() as db, db.transaction():
            db.execute(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            )  # reads nodes and edges from one snapshot
            for id, type, attributes in self._scan(db, "nodes"):
                yield ElementRecord(id, type, attributes.encode())
            for id, type, attributes, targets in self._scan(db, "edges"):
                yield ElementRecord(id, type, attributes.encode(), tuple(json.loads(targets)))

    def append(self, batch: Batch) -> int:
        validate_meta_keys(batch.meta)
        with self._lock, translate_errors(self.place):
            self._number += 1
            # Before `open_for_writing` a batch has no name by which a retry could recognise it.
            pauses = iter(RETRY_AFTER_SECONDS if self._boot is not None else ())
            while True:
                try:
                    return self._append(batch)
                except psycopg.OperationalError as problem:
                    pause = next(pauses, None) if is_connection_lost(problem) else None
                    if pause is None:
                        raise
                time.sleep(pause)

    def read(self, after: int, limit: int) -> Sequence[JournalRow]:
        with self._connection() as db:
            rows = [_journal_row(row) for row in db.execute(self._sql["read"], (after, limit))]
            first = int(self._validate_meta(db.execute(self._sql["store meta"]).fetchall())[FIRST_OFFSET_KEY])
        # Check after reading the rows: an offset that is not trimmed now was not trimmed before.
        if after + 1 < first:
            raise trimmed_away(self.place, after, first)
        return rows

    def last_offset(self) -> int:
        with self._connection() as db:
            return self._last_offset(db)

    def trim(self, before_time_ms: int) -> int:
        with self._connection() as db:
            kept = db.execute(self._sql["first kept offset"], (before_time_ms,)).fetchone()
            cut = int(kept[0]) if kept else self._last_offset(db) + 1
        while self._trim_some(cut):
            pass
        return cut

    def close(self) -> None:
        """The catalog owns the connections. Idempotent."""
        self.closed = True

    def _append(self, batch: Batch) -> int:
        self._check_open()
        with self._connections.connection() as db, db.transaction():
            meta = self._lock_meta(db)
            name = f"{self._boot}.{self._number}"
            if self._boot is not None and meta[LAST_BATCH_KEY] == name:
                return self._last_offset(db)  # committed by an earlier attempt, whose connection broke
            self._check_writer(meta, batch.sequence)
            batch_name = [(LAST_BATCH_KEY, name)] if self._boot is not None else []
            sequence = [(SEQUENCE_KEY, str(batch.sequence))] if batch.sequence else []
            with db.pipeline():
                self._write(db, batch, dict([*batch_name, *sequence, *batch.meta]))
            self._copy(db, batch.journal)
            return self._last_offset(db)

    def _write(self, db: Connection, batch: Batch, meta: Mapping[str, str]) -> None:
        if meta:
            db.execute(self._sql["set"], _columns(meta.items()))
            if not all(meta.values()):
                db.execute(self._sql["unset"], ([key for key, value in meta.items() if not value],))
        if batch.deletes:
            db.execute(self._sql["delete"], (list(batch.deletes),))
        if batch.puts:
            db.execute(self._sql["put"], _columns(map(_element_row, batch.puts)))
        if batch.definitions:
            db.cursor().executemany(self._sql["define"], [(text,) for text in batch.definitions])
        if batch.journal and not _can_copy(batch.journal):
            db.execute(self._sql["append once"], _columns(map(_journal_values, batch.journal)))

    def _copy(self, db: Connection, rows: Sequence[JournalRow]) -> None:
        if not _can_copy(rows):
            return
        with db.cursor().copy(self._sql["copy journal"]) as copy:
            for row in rows:
                copy.write_row(_journal_values(row))

    def _trim_some(self, cut: int) -> bool:
        with self._connection() as db, db.transaction():
            self._check_writer(self._lock_meta(db), 0)
            (last,) = _one(db.execute(self._sql["last trimmed offset"], (cut, TRIM_CHUNK_ROWS)).fetchone())
            if last is None:
                return False
            db.execute(self._sql["trim"], (last,))
            db.execute(self._sql["set"], ([FIRST_OFFSET_KEY], [str(last + 1)]))
            return True

    def _lock_meta(self, db: Connection) -> dict[str, str]:
        """Read the store's own meta rows and lock out other writers until the transaction ends."""
        with db.pipeline():
            db.execute(self._sql["lock"])
            # In a statement of its own, whose snapshot includes the transaction that the lock waited for.
            cursor = db.execute(self._sql["store meta"])
        return self._validate_meta(cursor.fetchall())

    def _check_writer(self, meta: Mapping[str, str], sequence: int) -> None:
        boot, stored = int(meta[BOOT_KEY]), int(meta[SEQUENCE_KEY])
        if self._boot is not None and boot != self._boot:
            raise writer_fenced(self.place, self._boot, boot)
        if sequence and sequence < stored:
            raise sequence_went_back(self.place, sequence, stored)

    def _scan(self, db: Connection, statement: str) -> Iterator[tuple[Any, ...]]:
        with db.cursor(name=f"vedette_{statement}") as cursor:
            cursor.itersize = SCAN_ROWS
            yield from cursor.execute(self._sql[statement])

    def _validate_meta(self, rows: Sequence[tuple[Any, ...]]) -> dict[str, str]:
        meta: dict[str, str] = dict(rows)
        parse_info(meta, (), self.place)
        if LAST_BATCH_KEY not in meta or not meta.get(FIRST_OFFSET_KEY, "").isdecimal():
            raise store_corrupt(self.place, "a meta row of the store is missing or unreadable")
        return meta

    def _last_offset(self, db: Connection) -> int:
        (last,) = _one(db.execute(self._sql["last offset"]).fetchone())
        return int(last)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        self._check_open()
        with translate_errors(self.place), self._connections.connection() as db:
            yield db

    def _check_open(self) -> None:
        if self.closed:
            raise StoreError("E6005", f"{self.place} is closed: open it again", fields={"place": self.place})


def _one(row: tuple[Any, ...] | None) -> tuple[Any, ...]:
    assert row is not None, "an aggregate always gives one row"
    return row


def _can_copy(rows: Sequence[JournalRow]) -> bool:
    """COPY is the fastest way to insert many rows, but needs a round trip and cannot skip duplicates."""
    return len(rows) >= COPY_ROWS and all(row.event_id is None for row in rows)


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _element_row(record: ElementRecord) -> tuple[str, str, str, str | None]:
    targets = None if record.targets is None else json.dumps(record.targets)
    return record.id, record.type, record.attributes.decode(), targets


def _journal_values(row: JournalRow) -> tuple[Any, ...]:
    before = None if row.before is None else row.before.decode()
    after = None if row.after is None else row.after.decode()
    return (*row[:4], before, after, *row[6:12])


def _journal_row(row: tuple[Any, ...]) -> JournalRow:
    images = (None if image is None else image.encode() for image in row[4:6])
    return JournalRow._make((*row[:4], *images, *row[6:]))
