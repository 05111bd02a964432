"""A store in one SQLite file: the default. Inspect it with any SQLite tool, also while it is in use.

One connection writes, another reads ranges of the journal, and each scan of the elements has its own; with the
write-ahead log none waits for another. Rows go in by up to 64 at a time in one statement, whatever their number: every
SQLite call gives up the interpreter lock and has to win it back from the engine's thread, so fewer, larger calls matter
more than C speed.

A small batch is kept whole first, by one statement that is a transaction by itself, and entered in the tables within
a moment (`pending.py`). Reading shows both. Other programs, which look at the tables, see it that moment later.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import islice, starmap
from pathlib import Path
from threading import Lock
from typing import NoReturn

from vedette.clock import Clock, SystemClock
from vedette.errors import StoreError
from vedette.storage.meta import (
    FIRST,
    check_meta,
    damaged,
    loaded,
    superseded,
    tick_went_back,
    trimmed,
)
from vedette.storage.seam import Batch, Durability, ElementRecord, JournalRow, Loaded
from vedette.storage.sqlite.background import Mover
from vedette.storage.sqlite.connection import (
    LOG_BYTES,
    check_file,
    create_file,
    lengthen_log,
    migrate_file,
    open_reader,
    open_writer,
    transaction,
)
from vedette.storage.sqlite.errors import from_sqlite, translated
from vedette.storage.sqlite.migrations import MIGRATIONS, Migration
from vedette.storage.sqlite.pending import (
    Pending,
    PendingElements,
    decode_pending,
    encode_pending,
    net_effect,
    rows_of,
)
from vedette.storage.sqlite.rows import APPEND, APPEND_AT, APPEND_ONCE, enter_batch, insert_rows

__all__ = ["SqliteStore"]

TRIM_ROWS = 10_000
"""Journal rows forgotten in one transaction, so that commits get their turn in between."""
KEPT_ROWS = 16
"""A batch with more rows is entered in the tables at once: written twice, it would cost more than it saves."""
KEPT_DELETES, MOST_KEPT_DELETES = 64, 2_048
"""But so many deletes are kept, too: of a long table each takes two pages of its own out of its place."""
MOVED_ROWS = 128
"""Rows entered in one transaction, as above."""
MANY_PENDING_ROWS, MOST_PENDING_ROWS = 20_000, 100_000
"""With many pending they are entered soon, with more whoever appends enters some first."""
LOOK_AT_LOG = 16
"""Every so many batches."""
LOG_BYTES_A_BATCH = 32 * 1024

_GET = "SELECT value FROM meta WHERE key = ?"
_SET = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
# One statement both checks that the batch may be written and notes its tick.
_CLAIM = """UPDATE meta SET value = max(CAST(value AS INTEGER), ?1)
    WHERE key = 'store.tick' AND (?1 = 0 OR CAST(value AS INTEGER) <= ?1)
    AND (?2 IS NULL OR ?2 = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'store.boot'))"""
# A transaction by itself: the batch is kept if nobody else has opened the database since.
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
        migrations: tuple[Migration, ...] = MIGRATIONS,
    ) -> None:
        self.path = path
        self.place = str(path)
        self._boot: int | None = None
        self._keeps = durability == "fsync"
        """Whether small batches are kept first: those who need not wait for the disk come in large ones anyway."""
        self._tick = self._offset = self._number = self._pending_rows = 0
        """Once loaded: the highest tick, the journal's last offset, the last pending batch, rows of all of them."""
        self._write_lock, self._read_lock = Lock(), Lock()
        self._mover = Mover(self._tidy_up, f"vedette-tidy-{path.stem}")
        self._appended = self._log_bytes = 0
        """Batches since it was opened, and how long the write-ahead log was made."""
        with translated(self.place):
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

    def load(self) -> Loaded:
        with self._writing() as db:
            boot = self._value(db, _OPENED)
            self._enter(db, self._pending(db))
            offset = self._value(db, _LAST)
        self._boot, self._offset = boot, offset
        facts = self.facts()
        self._tick = facts.tick
        return facts

    def facts(self) -> Loaded:
        with self._reading() as db:
            meta = dict(db.execute("SELECT key, value FROM meta"))
            definitions = [text for (text,) in db.execute("SELECT text FROM definitions ORDER BY position")]
            pending = [batch for _, batch in self._pending(db)]
        facts = loaded(meta, definitions, self.place)
        if not pending:
            return facts
        effect = net_effect(pending)
        known = {key: value for key, value in {**facts.meta, **dict(effect.meta)}.items() if value}
        return replace(facts, tick=max(facts.tick, effect.tick), meta=known)

    def elements(self) -> Iterator[ElementRecord]:
        self._opened(self._writer)
        with translated(self.place), closing(open_reader(self.path)) as db:
            db.execute("BEGIN")  # nodes and edges of one moment
            shown = PendingElements([batch for _, batch in self._pending(db)])
            yield from shown.nodes(starmap(ElementRecord, db.execute(_NODES)))
            edges = (
                ElementRecord(id, type, attributes, self._targets(id, targets))
                for id, type, attributes, targets in db.execute(_EDGES)
            )
            yield from shown.edges(edges)

    def append(self, batch: Batch) -> int:
        check_meta(batch.meta)
        rows = len(batch.puts) + len(batch.deletes) + len(batch.journal) + 1
        light = rows <= KEPT_ROWS or KEPT_DELETES <= len(batch.deletes) <= MOST_KEPT_DELETES
        if light and self._boot is not None and self._keeps and _is_plain(batch):
            return self._keep(batch, rows)
        with self._writing() as db:
            self._check_tick(batch)
            self._claim(db, batch.tick)
            self._enter(db, self._pending(db))
            enter_batch(db, batch)
            offset = self._append_journal(db, batch.journal)
            self._pending_rows = 0
            self._tick, self._offset = max(self._tick, batch.tick), offset
        self._note_append(soon=True)
        return offset

    def read(self, after: int, limit: int) -> Sequence[JournalRow]:
        with self._reading() as db:
            rows = list(starmap(JournalRow, db.execute(_READ, (after, limit))))
            if len(rows) < limit:
                pending = [batch for _, batch in self._pending(db)]
                last = rows[-1].offset if rows else after
                rows += islice((row for row in rows_of(pending) if row.offset > last), limit - len(rows))
            first = self._value(db, _GET, FIRST)
        # Looked at after the rows were: what is not trimmed now was not trimmed then.
        if after + 1 < first:
            raise trimmed(self.place, after, first)
        return rows

    def last_offset(self) -> int:
        with self._reading() as db:
            pending = self._pending(db)
            return pending[-1][1].last_offset if pending else self._value(db, _LAST)

    def trim(self, before_time_ms: int) -> int:
        while self._enter_some():
            pass
        with self._reading() as db:
            young = db.execute(_FIRST_YOUNG, (before_time_ms,)).fetchone()
            cut = int(young[0]) if young else self._value(db, _LAST) + 1
        while self._trim_some(cut):
            pass
        return cut

    def put_meta(self, items: Iterable[tuple[str, str]]) -> None:
        self.append(Batch(meta=tuple(items)))

    @property
    def closed(self) -> bool:
        return self._writer is None

    def close(self) -> None:
        """Enters what is pending, copies the write-ahead log into the file. Closing twice is nothing."""
        self._mover.close()
        if self._boot is not None and not self.closed:
            with suppress(
                StoreError
            ):  # it is durable as it is, and entered when the database is opened again
                while self._enter_some():
                    pass
        with self._write_lock, self._read_lock, translated(self.place):
            for db in (self._reader, self._writer):
                if db is not None:
                    db.close()
            self._reader = self._writer = None

    # ------------------------------------------------------------ batches that wait to be entered

    def _keep(self, batch: Batch, rows: int) -> int:
        """Durable by one statement; entered in the tables soon."""
        if self._pending_rows > MOST_PENDING_ROWS:
            self._enter_some()
        with self._write_lock:
            db = self._opened(self._writer)
            self._check_tick(batch)
            # Counted first: an offset or a number that nobody has is nothing, one that two have is damage.
            before = self._offset
            self._number += 1
            self._offset = last = before + len(batch.journal)
            try:
                kept = db.execute(_KEEP, (self._number, encode_pending(before, batch), self._boot)).rowcount
            except sqlite3.Error as problem:
                self._offset = before
                raise from_sqlite(problem, self.place) from problem
            if kept != 1:
                self._refuse(db, batch.tick)
            self._pending_rows += rows
            self._tick = max(self._tick, batch.tick)
        self._note_append(soon=rows <= KEPT_ROWS or self._pending_rows > MANY_PENDING_ROWS)
        return last

    def _note_append(self, *, soon: bool) -> None:
        self._appended += 1
        if self._pending_rows or self._appended % LOOK_AT_LOG == 0:
            self._mover.ask(soon=soon)

    def _tidy_up(self) -> int:
        """What can wait: batches to be entered, room in the log. Returns how many rows are left to be entered."""
        left = self._enter_some()
        return left if left else self._tidy_log()

    def _tidy_log(self) -> int:
        """Make the write-ahead log longer, ahead of what is written, but not for a few batches; 0 when it is so."""
        wanted = min(LOG_BYTES, self._appended // LOOK_AT_LOG * LOOK_AT_LOG * LOG_BYTES_A_BATCH)
        if not self._keeps or self._log_bytes >= wanted:
            return 0
        with self._write_lock, translated(self.place):
            if lengthen_log(self._opened(self._writer), self.path, wanted):
                self._log_bytes = wanted
        return int(self._log_bytes < wanted)

    def _check_tick(self, batch: Batch) -> None:
        """Before it is kept; what is entered is checked by the tables themselves as well."""
        if batch.tick and batch.tick < self._tick:
            raise tick_went_back(self.place, batch.tick, self._tick)

    def _enter_some(self) -> int:
        """Enter some batches in the tables, the oldest first; returns how many rows are left."""
        if not self._pending_rows:
            return 0
        with self._write_lock:
            with self._unhurried() as db:
                some = self._pending(db, MOVED_ROWS)
                if some:
                    self._claim(db, 0)
                    self._enter(db, some)
            rows = sum(batch.rows for _, batch in some)
            self._pending_rows = self._pending_rows - rows if some else 0
            return self._pending_rows

    def _pending(self, db: sqlite3.Connection, rows: int | None = None) -> list[tuple[int, Pending]]:
        """Batches with their numbers, in order; as many as it takes for so many rows, or all."""
        found: list[tuple[int, Pending]] = []
        left = rows if rows is not None else 1 << 62
        try:
            for number, blob in db.execute(_KEPT):
                if left <= 0:
                    break
                found.append((number, decode_pending(blob)))
                left -= found[-1][1].rows
            return found
        except (TypeError, ValueError) as problem:
            raise damaged(self.place, f"a batch that was kept is unreadable: {problem}") from problem

    def _enter(self, db: sqlite3.Connection, some: Sequence[tuple[int, Pending]]) -> None:
        if some:
            effect = net_effect([batch for _, batch in some])
            enter_batch(db, effect)
            insert_rows(db, APPEND_AT, effect.journal)
            db.execute(_SET_TICK, (effect.tick,))
            db.execute(_ENTERED, (some[-1][0],))

    # ------------------------------------------------------------ the rest

    def _trim_some(self, cut: int) -> bool:
        with self._writing() as db:
            (last,) = db.execute(_LAST_OLD, (cut, TRIM_ROWS)).fetchone()
            if last is None:
                return False
            self._claim(db, 0)
            db.execute(_FORGET, (last,))
            db.execute(_SET, (FIRST, str(last + 1)))
            return True

    def _claim(self, db: sqlite3.Connection, tick: int) -> None:
        if db.execute(_CLAIM, (tick, self._boot)).rowcount != 1:
            self._refuse(db, tick)

    def _refuse(self, db: sqlite3.Connection, tick: int) -> NoReturn:
        """Say why a batch may not be written."""
        facts = dict(db.execute("SELECT key, value FROM meta"))
        now = loaded(facts, (), self.place)
        if self._boot is not None and now.boot != self._boot:
            raise superseded(self.place, self._boot, now.boot)
        raise tick_went_back(self.place, tick, now.tick)

    def _append_journal(self, db: sqlite3.Connection, rows: Sequence[JournalRow]) -> int:
        """Returns the journal's last offset. Only rows of external sources can be repeats and need the check."""
        if rows and all(row.event_id is None for row in rows):
            return insert_rows(db, APPEND, rows)
        insert_rows(db, APPEND_ONCE, rows)
        return self._value(db, _LAST)

    def _value(self, db: sqlite3.Connection, statement: str, *values: str) -> int:
        row = db.execute(statement, values).fetchone()
        try:
            return int(row[0])
        except (TypeError, ValueError) as problem:
            raise damaged(self.place, "one of its own facts is missing or unreadable") from problem

    def _targets(self, id: str, text: str) -> tuple[str, ...]:
        try:
            return tuple(json.loads(text))
        except (TypeError, ValueError) as problem:
            raise damaged(self.place, f"the targets of edge {id} are unreadable") from problem

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._write_lock, translated(self.place):
            db = self._opened(self._writer)
            with transaction(db):
                yield db

    @contextmanager
    def _unhurried(self) -> Iterator[sqlite3.Connection]:
        """A transaction that moves what is durable already: whoever syncs next syncs it, too. With the lock held."""
        with translated(self.place):
            db = self._opened(self._writer)
            db.execute("PRAGMA synchronous = NORMAL")
            try:
                with transaction(db):
                    yield db
            finally:
                db.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """All that is read is of one moment."""
        with self._read_lock, translated(self.place):
            db = self._opened(self._reader)
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.execute("COMMIT")

    def _opened(self, db: sqlite3.Connection | None) -> sqlite3.Connection:
        if db is None:
            raise StoreError("E6005", f"{self.place} is closed: open it again", fields={"place": self.place})
        return db


def _is_plain(batch: Batch) -> bool:
    """Whether nothing of it must be looked up in the tables, and no reader needs it before it is entered."""
    return not batch.definitions and all(row.event_id is None for row in batch.journal)
