"""A store in one SQLite file, the default. Any SQLite tool can read it, also while it is in use.

One connection writes, another reads ranges of the journal, and each scan of the elements has its own; with the
write-ahead log none waits for another. Rows are inserted 64 per statement: every SQLite call releases the GIL and has
to acquire it again from the engine thread, so few large calls are faster.

A small batch is first stored as one row by one statement, and applied to the tables soon after (`pending.py`). Readers
of the store see both. Other programs read the tables and see the batch later.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import islice, starmap
from pathlib import Path
from threading import Lock
from typing import NoReturn

from vedette.clock import Clock, SystemClock
from vedette.errors import StoreError
from vedette.storage.meta import (
    FIRST_OFFSET_KEY,
    journal_trimmed,
    parse_info,
    sequence_went_back,
    store_corrupt,
    validate_meta_keys,
    writer_fenced,
)
from vedette.storage.seam import Batch, Durability, ElementRecord, JournalRow, StoreInfo
from vedette.storage.sqlite.background import BackgroundWorker
from vedette.storage.sqlite.connection import (
    WAL_BYTES,
    check_file,
    create_file,
    extend_wal,
    migrate_file,
    open_reader,
    open_writer,
    transaction,
)
from vedette.storage.sqlite.errors import from_sqlite_error, translate_errors
from vedette.storage.sqlite.migrations import SQLITE_MIGRATIONS, Migration
from vedette.storage.sqlite.pending import (
    PendingBatch,
    PendingOverlay,
    decode_pending,
    encode_pending,
    merge_batches,
    pending_journal_rows,
)
from vedette.storage.sqlite.rows import (
    INSERT_JOURNAL,
    INSERT_JOURNAL_AT,
    INSERT_JOURNAL_ONCE,
    apply_batch,
    insert_rows,
)

__all__ = ["SqliteStore"]

TRIM_CHUNK_ROWS = 10_000
"""Journal rows deleted per transaction, so that commits can run in between."""
MAX_PENDING_BATCH_ROWS = 16
"""A batch with more rows is applied to the tables at once: writing it twice would cost more than it saves."""
MIN_PENDING_DELETES, MAX_PENDING_DELETES = 64, 2_048
"""Batches with at least this many deletes are stored as pending too, because each delete in a long table changes two
pages.
"""
APPLY_CHUNK_ROWS = 128
"""Rows applied per transaction, so that commits can run in between."""
URGENT_PENDING_ROWS, MAX_PENDING_ROWS = 20_000, 100_000
"""Above the first number, pending rows are applied soon. Above the second, `append` applies some of them first."""
WAL_CHECK_EVERY_BATCHES = 16
"""The length of the write-ahead log is checked after this number of batches."""
WAL_BYTES_PER_BATCH = 32 * 1024

_GET = "SELECT value FROM meta WHERE key = ?"
_SET = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
# Checks the boot count and stores the sequence in one statement.
_CLAIM = """UPDATE meta SET value = max(CAST(value AS INTEGER), ?1)
    WHERE key = 'store.tick' AND (?1 = 0 OR CAST(value AS INTEGER) <= ?1)
    AND (?2 IS NULL OR ?2 = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'store.boot'))"""
# Stores a pending batch if no other process has opened the database. The statement is a transaction.
_KEEP = """INSERT INTO pending (number, batch)
    SELECT ?1, ?2 WHERE ?3 = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'store.boot')"""
_KEPT = "SELECT number, batch FROM pending ORDER BY number"
_ENTERED = "DELETE FROM pending WHERE number <= ?"
_SET_TICK = """UPDATE meta SET value = max(CAST(value AS INTEGER), ?) WHERE key = 'store.tick'"""
_OPENED = "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'store.boot' RETURNING value"
_LAST = """SELECT coalesce(max("offset"),
    (SELECT CAST(value AS INTEGER) - 1 FROM meta WHERE key = 'store.first')) FROM journal"""
_READ = """SELECT tick, "transaction", collection, key, CAST(before AS BLOB), CAST(after AS BLOB), time_ms, cause,
    source, partition, seq, event_id, "offset" FROM journal WHERE "offset" > ? ORDER BY "offset" LIMIT ?"""
_NODES = "SELECT id, type, CAST(attributes AS BLOB) FROM elements WHERE targets IS NULL ORDER BY created"
_EDGES = "SELECT id, type, CAST(attributes AS BLOB), targets FROM elements WHERE targets IS NOT NULL ORDER BY created"
_FIRST_YOUNG = 'SELECT "offset" FROM journal WHERE time_ms >= ? ORDER BY "offset" LIMIT 1'
_LAST_OLD = (
    'SELECT max("offset") FROM (SELECT "offset" FROM journal WHERE "offset" < ? ORDER BY "offset" LIMIT ?)'
)
_FORGET = 'DELETE FROM journal WHERE "offset" <= ?'


class SqliteStore:
    """One database in the file `path`, created if it does not exist. Only one process may open it."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = "fsync",
        clock: Clock | None = None,
        migrations: tuple[Migration, ...] = SQLITE_MIGRATIONS,
    ) -> None:
        self.path = path
        self.place = str(path)
        self._boot: int | None = None
        self._uses_pending = durability == "fsync"
        """True if small batches are stored as pending. With relaxed durability batches are large anyway."""
        self._tick = self._offset = self._number = self._pending_rows = 0
        """After loading: highest sequence, last offset of the journal, number of the last pending batch, and rows of
        all pending batches.
        """
        self._write_lock, self._read_lock = Lock(), Lock()
        self._mover = BackgroundWorker(self._background_step, f"vedette-tidy-{path.stem}")
        self._appended = self._log_bytes = 0
        """Batches since the store was opened, and the length to which the write-ahead log was extended."""
        with translate_errors(self.place):
            if path.exists():
                check_file(path)
            else:
                create_file(path, clock or SystemClock(), migrations)
            self._writer: sqlite3.Connection | None = open_writer(path, durability)
            try:
                migrate_file(self._writer, self.place, migrations)
                self._reader: sqlite3.Connection | None = open_reader(path)
            except BaseException:
                self._writer.close()
                raise

    def open_for_writing(self) -> StoreInfo:
        with self._write_transaction() as db:
            boot = self._value(db, _OPENED)
            self._apply(db, self._pending(db))
            offset = self._value(db, _LAST)
        self._boot, self._offset = boot, offset
        facts = self.info()
        self._tick = facts.sequence
        return facts

    def info(self) -> StoreInfo:
        with self._read_transaction() as db:
            meta = dict(db.execute("SELECT key, value FROM meta"))
            definitions = [text for (text,) in db.execute("SELECT text FROM definitions ORDER BY position")]
            pending = [batch for _, batch in self._pending(db)]
        facts = parse_info(meta, definitions, self.place)
        if not pending:
            return facts
        effect = merge_batches(pending)
        known = {key: value for key, value in {**facts.meta, **dict(effect.meta)}.items() if value}
        return replace(facts, sequence=max(facts.sequence, effect.sequence), meta=known)

    def elements(self) -> Iterator[ElementRecord]:
        self._require_open(self._writer)
        with translate_errors(self.place), closing(open_reader(self.path)) as db:
            db.execute("BEGIN")  # reads nodes and edges from one snapshot
            shown = PendingOverlay([batch for _, batch in self._pending(db)])
            yield from shown.nodes(starmap(ElementRecord, db.execute(_NODES)))
            edges = (
                ElementRecord(id, type, attributes, self._targets(id, targets))
                for id, type, attributes, targets in db.execute(_EDGES)
            )
            yield from shown.edges(edges)

    def append(self, batch: Batch) -> int:
        validate_meta_keys(batch.meta)
        rows = len(batch.puts) + len(batch.deletes) + len(batch.journal) + 1
        light = (
            rows <= MAX_PENDING_BATCH_ROWS or MIN_PENDING_DELETES <= len(batch.deletes) <= MAX_PENDING_DELETES
        )
        if light and self._boot is not None and self._uses_pending and _can_be_pending(batch):
            return self._append_pending(batch, rows)
        with self._write_transaction() as db:
            self._check_tick(batch)
            self._fence_and_set_sequence(db, batch.sequence)
            self._apply(db, self._pending(db))
            apply_batch(db, batch)
            offset = self._append_journal(db, batch.journal)
            self._pending_rows = 0
            self._tick, self._offset = max(self._tick, batch.sequence), offset
        self._note_append(soon=True)
        return offset

    def read(self, after: int, limit: int) -> Sequence[JournalRow]:
        with self._read_transaction() as db:
            rows = list(starmap(JournalRow, db.execute(_READ, (after, limit))))
            if len(rows) < limit:
                pending = [batch for _, batch in self._pending(db)]
                last = rows[-1].offset if rows else after
                rows += islice(
                    (row for row in pending_journal_rows(pending) if row.offset > last), limit - len(rows)
                )
            first = self._value(db, _GET, FIRST_OFFSET_KEY)
        # Check after reading the rows: an offset that is not trimmed now was not trimmed before.
        if after + 1 < first:
            raise journal_trimmed(self.place, after, first)
        return rows

    def last_offset(self) -> int:
        with self._read_transaction() as db:
            pending = self._pending(db)
            return pending[-1][1].last_offset if pending else self._value(db, _LAST)

    def trim(self, before_time_ms: int) -> int:
        while self._apply_chunk():
            pass
        with self._read_transaction() as db:
            young = db.execute(_FIRST_YOUNG, (before_time_ms,)).fetchone()
            cut = int(young[0]) if young else self._value(db, _LAST) + 1
        while self._trim_some(cut):
            pass
        return cut

    @property
    def closed(self) -> bool:
        return self._writer is None

    def close(self) -> None:
        """Apply pending batches and checkpoint the write-ahead log. Idempotent."""
        self._mover.close()
        if self._boot is not None and not self.closed:
            with suppress(
                StoreError
            ):  # the batches are durable, and are applied when the database is opened again
                while self._apply_chunk():
                    pass
        with self._write_lock, self._read_lock, translate_errors(self.place):
            for db in (self._reader, self._writer):
                if db is not None:
                    db.close()
            self._reader = self._writer = None

    # Pending batches

    def _append_pending(self, batch: Batch, rows: int) -> int:
        """Make the batch durable with one statement. It is applied to the tables later."""
        if self._pending_rows > MAX_PENDING_ROWS:
            self._apply_chunk()
        with self._write_lock:
            db = self._require_open(self._writer)
            self._check_tick(batch)
            # Count before writing: an unused offset or number is harmless, a duplicate is damage.
            before = self._offset
            self._number += 1
            self._offset = last = before + len(batch.journal)
            try:
                kept = db.execute(_KEEP, (self._number, encode_pending(before, batch), self._boot)).rowcount
            except sqlite3.Error as problem:
                self._offset = before
                raise from_sqlite_error(problem, self.place) from problem
            if kept != 1:
                self._raise_refusal(db, batch.sequence)
            self._pending_rows += rows
            self._tick = max(self._tick, batch.sequence)
        self._note_append(soon=rows <= MAX_PENDING_BATCH_ROWS or self._pending_rows > URGENT_PENDING_ROWS)
        return last

    def _note_append(self, *, soon: bool) -> None:
        self._appended += 1
        if self._pending_rows or self._appended % WAL_CHECK_EVERY_BATCHES == 0:
            self._mover.request(soon=soon)

    def _background_step(self) -> int:
        """Do deferred work: apply pending batches, extend the log.

        Return the number of rows that remain to be applied.
        """
        left = self._apply_chunk()
        return left if left else self._extend_wal()

    def _extend_wal(self) -> int:
        """Extend the write-ahead log ahead of the writes, once there were enough batches.

        Return 0 when it is long enough.
        """
        wanted = min(
            WAL_BYTES,
            self._appended // WAL_CHECK_EVERY_BATCHES * WAL_CHECK_EVERY_BATCHES * WAL_BYTES_PER_BATCH,
        )
        if not self._uses_pending or self._log_bytes >= wanted:
            return 0
        with self._write_lock, translate_errors(self.place):
            if extend_wal(self._require_open(self._writer), self.path, wanted):
                self._log_bytes = wanted
        return int(self._log_bytes < wanted)

    def _check_tick(self, batch: Batch) -> None:
        """Checks before a batch is stored as pending. The tables check again when it is applied."""
        if batch.sequence and batch.sequence < self._tick:
            raise sequence_went_back(self.place, batch.sequence, self._tick)

    def _apply_chunk(self) -> int:
        """Apply some batches to the tables, oldest first. Return the number of rows that remain."""
        if not self._pending_rows:
            return 0
        with self._write_lock:
            with self._unsynced_transaction() as db:
                some = self._pending(db, APPLY_CHUNK_ROWS)
                if some:
                    self._fence_and_set_sequence(db, 0)
                    self._apply(db, some)
            rows = sum(batch.rows for _, batch in some)
            self._pending_rows = self._pending_rows - rows if some else 0
            return self._pending_rows

    def _pending(self, db: sqlite3.Connection, rows: int | None = None) -> list[tuple[int, PendingBatch]]:
        """Return pending batches with their numbers, in order: enough for `rows` rows, or all."""
        found: list[tuple[int, PendingBatch]] = []
        left = rows if rows is not None else 1 << 62
        try:
            for number, blob in db.execute(_KEPT):
                if left <= 0:
                    break
                found.append((number, decode_pending(blob)))
                left -= found[-1][1].rows
            return found
        except (TypeError, ValueError) as problem:
            raise store_corrupt(self.place, f"a pending batch is unreadable: {problem}") from problem

    def _apply(self, db: sqlite3.Connection, some: Sequence[tuple[int, PendingBatch]]) -> None:
        if some:
            effect = merge_batches([batch for _, batch in some])
            apply_batch(db, effect)
            insert_rows(db, INSERT_JOURNAL_AT, effect.journal)
            db.execute(_SET_TICK, (effect.sequence,))
            db.execute(_ENTERED, (some[-1][0],))

    # Helpers

    def _trim_some(self, cut: int) -> bool:
        with self._write_transaction() as db:
            (last,) = db.execute(_LAST_OLD, (cut, TRIM_CHUNK_ROWS)).fetchone()
            if last is None:
                return False
            self._fence_and_set_sequence(db, 0)
            db.execute(_FORGET, (last,))
            db.execute(_SET, (FIRST_OFFSET_KEY, str(last + 1)))
            return True

    def _fence_and_set_sequence(self, db: sqlite3.Connection, tick: int) -> None:
        if db.execute(_CLAIM, (tick, self._boot)).rowcount != 1:
            self._raise_refusal(db, tick)

    def _raise_refusal(self, db: sqlite3.Connection, tick: int) -> NoReturn:
        """Raise the reason why a batch may not be written."""
        facts = dict(db.execute("SELECT key, value FROM meta"))
        now = parse_info(facts, (), self.place)
        if self._boot is not None and now.boot_count != self._boot:
            raise writer_fenced(self.place, self._boot, now.boot_count)
        raise sequence_went_back(self.place, tick, now.sequence)

    def _append_journal(self, db: sqlite3.Connection, rows: Sequence[JournalRow]) -> int:
        """Insert journal rows and return the last offset. Only rows of external sources can be duplicates."""
        if rows and all(row.event_id is None for row in rows):
            return insert_rows(db, INSERT_JOURNAL, rows)
        insert_rows(db, INSERT_JOURNAL_ONCE, rows)
        return self._value(db, _LAST)

    def _value(self, db: sqlite3.Connection, statement: str, *values: str) -> int:
        row = db.execute(statement, values).fetchone()
        try:
            return int(row[0])
        except (TypeError, ValueError) as problem:
            raise store_corrupt(self.place, "a meta row of the store is missing or unreadable") from problem

    def _targets(self, id: str, text: str) -> tuple[str, ...]:
        try:
            return tuple(json.loads(text))
        except (TypeError, ValueError) as problem:
            raise store_corrupt(self.place, f"the targets of edge {id} are unreadable") from problem

    @contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        with self._write_lock, translate_errors(self.place):
            db = self._require_open(self._writer)
            with transaction(db):
                yield db

    @contextmanager
    def _unsynced_transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction over data that is already durable: the next sync covers it. Requires the lock."""
        with translate_errors(self.place):
            db = self._require_open(self._writer)
            db.execute("PRAGMA synchronous = NORMAL")
            try:
                with transaction(db):
                    yield db
            finally:
                db.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Read from one snapshot."""
        with self._read_lock, translate_errors(self.place):
            db = self._require_open(self._reader)
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.execute("COMMIT")

    def _require_open(self, db: sqlite3.Connection | None) -> sqlite3.Connection:
        if db is None:
            raise StoreError("E6005", f"{self.place} is closed: open it again", fields={"place": self.place})
        return db


def _can_be_pending(batch: Batch) -> bool:
    """True if the batch needs no look-up in the tables, and no reader needs it before it is applied."""
    return not batch.definitions and all(row.event_id is None for row in batch.journal)
