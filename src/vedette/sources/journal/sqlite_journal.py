"""The journal in one SQLite file of the data directory; the default. Other processes may read while one appends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import RLock
from typing import Any

from vedette.clock import Clock, SystemClock
from vedette.errors import StoreError
from vedette.sources.journal.append_plan import DocumentKey, keys_by_collection, plan_append
from vedette.sources.journal.errors import name_taken, trimmed, unknown_source
from vedette.sources.records import (
    MAX_COUNTED_BACKLOG,
    MAX_QUARANTINED,
    AppendResult,
    ChangeRow,
    Partition,
    PartitionBacklog,
    PartitionState,
    QuarantinedChange,
    SnapshotPage,
    Source,
    SourceEvent,
)
from vedette.storage.sqlite.connection import transaction
from vedette.storage.sqlite.errors import translate_errors
from vedette.storage.sqlite.rows import insert_rows, insert_statements
from vedette.values import timestamp_to_ms

__all__ = ["SqliteJournal"]

POLL_SECONDS = 0.005
"""Seconds between checks of `wait_for_append`; a check reads one number in shared memory."""
IDLE_POLL_SECONDS = 0.03
"""Seconds between checks after this many unsuccessful ones, so that an idle pipeline costs almost nothing."""
POLLS_UNTIL_IDLE = 400
CHECKPOINT_PAGES = 8_000
"""Pages of 4 KiB in the WAL before a checkpoint. Last images are spread over the whole file, so with SQLite's default
of 1,000 most pages of an append were written twice; with this value one page write covers several appends."""
FORMAT = 1
_BUSY_SECONDS = 30.0
_SCHEMA = (
    """CREATE TABLE sources (name TEXT PRIMARY KEY, kind TEXT NOT NULL, address TEXT NOT NULL, tenant TEXT NOT NULL,
        paused INTEGER NOT NULL, options TEXT NOT NULL, token TEXT) STRICT""",
    """CREATE TABLE partitions (id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, number INTEGER NOT NULL,
        epoch INTEGER NOT NULL, seq INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
        UNIQUE (source, number)) STRICT""",
    """CREATE TABLE changes ("offset" INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, tenant TEXT NOT NULL,
        partition INTEGER NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, event_id TEXT NOT NULL,
        collection TEXT NOT NULL, key TEXT NOT NULL, op TEXT NOT NULL, before BLOB, after BLOB,
        before_known INTEGER NOT NULL, time_ms INTEGER NOT NULL, appended_ms INTEGER NOT NULL,
        "transaction" TEXT NOT NULL, UNIQUE (source, event_id)) STRICT""",
    """CREATE TABLE images (source TEXT NOT NULL, collection TEXT NOT NULL, key TEXT NOT NULL, image BLOB NOT NULL,
        PRIMARY KEY (source, collection, key)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE quarantine (number INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, event_id TEXT NOT NULL,
        reason TEXT NOT NULL, excerpt TEXT NOT NULL, time_ms INTEGER NOT NULL, UNIQUE (source, event_id)) STRICT""",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT",
    "INSERT INTO meta VALUES ('first', 1)",
    f"PRAGMA user_version = {FORMAT}",
)
_COLUMNS = (
    '"offset", source, tenant, partition, epoch, seq, event_id, collection, key, op, before, after, before_known,'
    ' time_ms, appended_ms, "transaction"'
)
_INSERT = insert_statements(f"changes ({_COLUMNS})", f"(NULL, {', '.join('?' * 15)})")
_READ = f"""SELECT {_COLUMNS} FROM changes WHERE "offset" > ? AND "offset" <= ? AND partition % ? = ?
    ORDER BY "offset" LIMIT ?"""  # noqa: S608 - names only
_LAST = """SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'changes'), 0)"""
_SOURCE = "SELECT name, kind, address, tenant, paused, options FROM sources"
_PARTITION = "SELECT id, source, number, epoch, seq, state, reason FROM partitions"
_BEHIND = """SELECT partition, count(*), min(appended_ms) FROM
    (SELECT partition, appended_ms FROM changes WHERE "offset" > ? ORDER BY "offset" LIMIT ?) GROUP BY partition"""
_SIZES = """SELECT "offset", coalesce(length(before), 0) + coalesce(length(after), 0) FROM changes
    WHERE "offset" > ? ORDER BY "offset" LIMIT ?"""


class SqliteJournal:
    """Changes of external collections in the file `path`, created if it does not exist."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.address = str(path)
        self._clock = clock or SystemClock()
        self._lock = RLock()
        self._pause = Flag()
        self._idle_polls = 0
        with translate_errors(self.address):
            self._db = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            self._create()

    def _create(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with transaction(self._db):
                (version,) = self._db.execute("PRAGMA user_version").fetchone()
                for statement in _SCHEMA if version == 0 else ():
                    self._db.execute(statement)
        elif version != FORMAT:
            text = f"{self.address} has format {version}, this release reads {FORMAT}: use the release that wrote it"
            raise StoreError("E6004", text, fields={"place": self.address})

    # --- sources --------------------------------------------------------------------------------------------

    def add_source(self, source: Source) -> None:
        with self._writing() as db:
            if db.execute("SELECT 1 FROM sources WHERE name = ?", (source.name,)).fetchone():
                raise name_taken(source.name)
            db.execute(
                "INSERT INTO sources VALUES (?, ?, ?, ?, ?, ?, NULL)",
                (
                    source.name,
                    source.kind,
                    source.address,
                    source.tenant,
                    source.paused,
                    json.dumps(dict(source.options)),
                ),
            )
            epoch = timestamp_to_ms(self._clock.now())
            db.executemany(
                "INSERT INTO partitions (source, number, epoch, seq, state, reason) VALUES (?, ?, ?, 0, 'live', '')",
                [(source.name, number, epoch) for number in range(source.partitions)],
            )

    def remove_source(self, name: str) -> None:
        with self._writing() as db:
            if db.execute("DELETE FROM sources WHERE name = ?", (name,)).rowcount == 0:
                raise unknown_source(name)
            for table in ("partitions", "changes", "images", "quarantine"):
                db.execute(f"DELETE FROM {table} WHERE source = ?", (name,))  # noqa: S608 - one of ours

    def set_paused(self, name: str, paused: bool) -> None:
        with self._writing() as db:
            if db.execute("UPDATE sources SET paused = ? WHERE name = ?", (paused, name)).rowcount == 0:
                raise unknown_source(name)

    def sources(self) -> list[Source]:
        with self._reading() as db:
            return [self._source(db, row) for row in db.execute(f"{_SOURCE} ORDER BY name").fetchall()]

    def source(self, name: str) -> Source:
        with self._reading() as db:
            row = db.execute(f"{_SOURCE} WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise unknown_source(name)
            return self._source(db, row)

    def _source(self, db: sqlite3.Connection, row: tuple[Any, ...]) -> Source:
        name, kind, address, tenant, paused, options = row
        (count,) = db.execute("SELECT count(*) FROM partitions WHERE source = ?", (name,)).fetchone()
        return Source(
            name=name,
            kind=kind,
            address=address,
            tenant=tenant,
            partitions=count,
            paused=bool(paused),
            options=json.loads(options),
        )

    # --- readers --------------------------------------------------------------------------------------------

    def append(self, source: str, events: Sequence[SourceEvent], token: str | None) -> AppendResult:
        with self._writing() as db:
            owner = self.source(source)
            plan = plan_append(
                owner,
                self.partitions(source),
                events,
                self._known_ids(db, source, [event.event_id for event in events]),
                self._images(db, source, keys_by_collection(events)),
                timestamp_to_ms(self._clock.now()),
            )
            insert_rows(db, _INSERT, [row[1:] for row in plan.rows])
            db.executemany(
                "UPDATE partitions SET seq = ? WHERE id = ?", [(s, p) for p, s in plan.seqs.items()]
            )
            db.executemany(
                "INSERT OR REPLACE INTO images VALUES (?, ?, ?, ?)",
                [(source, *name, image) for name, image in sorted(plan.images.items()) if image is not None],
            )
            db.executemany(
                "DELETE FROM images WHERE source = ? AND collection = ? AND key = ?",
                [(source, *name) for name, image in plan.images.items() if image is None],
            )
            if token is not None:
                db.execute("UPDATE sources SET token = ? WHERE name = ?", (token, source))
            (offset,) = db.execute(_LAST).fetchone()
        return AppendResult(offset=offset, appended=len(plan.rows), repeated=plan.duplicates)

    def _known_ids(self, db: sqlite3.Connection, source: str, ids: list[str]) -> set[str]:
        found = db.execute(
            "SELECT event_id FROM changes WHERE source = ? AND event_id IN (SELECT value FROM json_each(?))",
            (source, json.dumps(ids)),
        )
        return {id for (id,) in found}

    def _images(
        self, db: sqlite3.Connection, source: str, names: Mapping[str, Collection[str]]
    ) -> dict[DocumentKey, bytes]:
        found: dict[DocumentKey, bytes] = {}
        for collection, keys in names.items():
            rows = db.execute(
                "SELECT key, image FROM images WHERE source = ? AND collection = ?"
                " AND key IN (SELECT value FROM json_each(?))",
                (source, collection, json.dumps(list(keys))),
            )
            found |= {(collection, key): image for key, image in rows}
        return found

    def resume_token(self, source: str) -> str | None:
        with self._reading() as db:
            row = db.execute("SELECT token FROM sources WHERE name = ?", (source,)).fetchone()
        if row is None:
            raise unknown_source(source)
        token: str | None = row[0]
        return token

    def image_keys(self, source: str, collection: str) -> set[str]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT key FROM images WHERE source = ? AND collection = ?", (source, collection)
            )
            return {key for (key,) in rows}

    def images(self, source: str, collection: str, keys: Collection[str]) -> dict[str, bytes]:
        with self._reading() as db:
            found = self._images(db, source, {collection: keys})
        return {key: image for (_, key), image in found.items()}

    def delete_images(self, source: str) -> None:
        with self._writing() as db:
            db.execute("DELETE FROM images WHERE source = ?", (source,))

    def quarantine(self, item: QuarantinedChange) -> None:
        with self._writing() as db:
            db.execute(
                "INSERT OR IGNORE INTO quarantine (source, event_id, reason, excerpt, time_ms) VALUES (?, ?, ?, ?, ?)",
                (item.source, item.event_id, item.reason, item.excerpt, item.time_ms),
            )

    def quarantined(self, source: str, limit: int = 100) -> list[QuarantinedChange]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT event_id, reason, excerpt, time_ms FROM quarantine WHERE source = ?"
                " ORDER BY number DESC LIMIT ?",
                (source, limit),
            ).fetchall()
        return [
            QuarantinedChange(source=source, event_id=id, reason=reason, excerpt=excerpt, time_ms=time_ms)
            for id, reason, excerpt, time_ms in rows
        ]

    def quarantined_total(self) -> int:
        with self._reading() as db:
            (number,) = db.execute("SELECT coalesce(max(number), 0) FROM quarantine").fetchone()
        return int(number)

    def set_state(
        self, source: str, state: PartitionState, reason: str = "", *, new_epoch: bool = False
    ) -> None:
        epoch = timestamp_to_ms(self._clock.now())
        with self._writing() as db:
            db.execute(
                "UPDATE partitions SET state = ?, reason = ?,"
                " epoch = CASE WHEN ? THEN max(epoch + 1, ?) ELSE epoch END WHERE source = ?",
                (state, reason, new_epoch, epoch, source),
            )

    def start_new_epoch(self, partition: int) -> None:
        epoch = timestamp_to_ms(self._clock.now())
        with self._writing() as db:
            db.execute("UPDATE partitions SET epoch = max(epoch + 1, ?) WHERE id = ?", (epoch, partition))

    # --- readers of the journal -----------------------------------------------------------------------------

    def partitions(self, source: str | None = None) -> list[Partition]:
        with self._reading() as db:
            rows = db.execute(
                f"{_PARTITION} WHERE ?1 IS NULL OR source = ?1 ORDER BY id", (source,)
            ).fetchall()
        return [
            Partition(id=id, source=name, number=number, epoch=epoch, seq=seq, state=state, reason=reason)
            for id, name, number, epoch, seq, state, reason in rows
        ]

    def read(
        self, after: int, upto: int, *, share: tuple[int, int] = (0, 1), limit: int | None = None
    ) -> Sequence[ChangeRow]:
        with self._reading() as db:
            rows = db.execute(_READ, (after, upto, share[1], share[0], -1 if limit is None else limit))
            found = [ChangeRow._make((*row[:12], bool(row[12]), *row[13:])) for row in rows]
            (first,) = db.execute("SELECT value FROM meta WHERE key = 'first'").fetchone()
        if after + 1 < first and after < upto:
            raise trimmed(self.address, after, first)
        return found

    def end_within_limits(self, after: int, max_rows: int, max_bytes: int) -> int:
        end, total = after, 0
        with self._reading() as db:
            for offset, size in db.execute(_SIZES, (after, max_rows)):
                total += size
                if end > after and total > max_bytes:
                    break
                end = offset
        return end

    def backlog(self, offset: int) -> dict[int, PartitionBacklog]:
        with self._reading() as db:
            rows = db.execute(_BEHIND, (offset, MAX_COUNTED_BACKLOG)).fetchall()
        return {partition: PartitionBacklog(changes, oldest) for partition, changes, oldest in rows}

    def last_offset(self) -> int:
        with self._reading() as db:
            (offset,) = db.execute(_LAST).fetchone()
        return int(offset)

    def wait_for_append(self, after: int, seconds: float) -> int:
        end = self._clock.monotonic() + seconds
        version = None
        while True:
            with self._reading() as db:
                (now,) = db.execute("PRAGMA data_version").fetchone()
            if now != version:
                version, last = now, self.last_offset()
                if last > after:
                    self._idle_polls = 0
                    return last
            if self._clock.monotonic() >= end:
                return self.last_offset()
            self._idle_polls += 1
            self._pause.wait(POLL_SECONDS if self._idle_polls < POLLS_UNTIL_IDLE else IDLE_POLL_SECONDS)

    def snapshot(
        self, tenant: str, collection: str, *, after_key: str | None = None, limit: int = 1000
    ) -> SnapshotPage:
        with self._reading() as db:
            db.execute("BEGIN")
            try:
                (offset,) = db.execute(_LAST).fetchone()
                rows = db.execute(
                    "SELECT key, image FROM images JOIN sources ON name = source WHERE tenant = ? AND collection = ?"
                    " AND (?3 IS NULL OR key > ?3) ORDER BY key LIMIT ?",
                    (tenant, collection, after_key, limit),
                ).fetchall()
            finally:
                db.execute("COMMIT")
        return SnapshotPage(offset=offset, documents=tuple(rows))

    def collections(self, tenant: str) -> list[str]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT DISTINCT collection FROM images JOIN sources ON name = source WHERE tenant = ? ORDER BY 1",
                (tenant,),
            )
            return [name for (name,) in rows]

    def trim(self, before_ms: int) -> int:
        with self._writing() as db:
            young = db.execute(
                'SELECT "offset" FROM changes WHERE appended_ms >= ? ORDER BY "offset" LIMIT 1', (before_ms,)
            ).fetchone()
            (last,) = db.execute(_LAST).fetchone()
            first = young[0] if young else last + 1
            db.execute('DELETE FROM changes WHERE "offset" < ?', (first,))
            db.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'first'", (first,))
            db.execute(
                "DELETE FROM quarantine WHERE number <= (SELECT max(number) FROM quarantine) - ?",
                (MAX_QUARANTINED,),
            )
        return int(first)

    def close(self) -> None:
        with self._lock, translate_errors(self.address):
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translate_errors(self.address), transaction(self._db):
            yield self._db

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translate_errors(self.address):
            yield self._db
