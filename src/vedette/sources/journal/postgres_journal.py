"""The journal in PostgreSQL, for pipelines and sources on several hosts. Same semantics as in SQLite.

Appends are serialized by an advisory lock. Offsets come from a sequence; without the lock, a smaller offset could
become visible after a larger one was read, and a reader of ranges would miss it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import psycopg

from vedette.clock import Clock, SystemClock
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
from vedette.storage.postgres.errors import translate_connect_errors, translate_errors
from vedette.values import timestamp_to_ms

__all__ = ["PostgresJournal"]

SCHEMA = "vedette_collections"
NOTIFY_CHANNEL = "vedette_journal"
APPEND_LOCK_KEY = 7_707_001
"""Key of the advisory lock that appends hold."""
_TABLES = f"""
    CREATE SCHEMA IF NOT EXISTS {SCHEMA};
    CREATE TABLE IF NOT EXISTS {SCHEMA}.sources (name text PRIMARY KEY, kind text NOT NULL, address text NOT NULL,
        tenant text NOT NULL, paused boolean NOT NULL, options text NOT NULL, token text);
    CREATE TABLE IF NOT EXISTS {SCHEMA}.partitions (id serial PRIMARY KEY, source text NOT NULL, number int NOT NULL,
        epoch bigint NOT NULL, seq bigint NOT NULL, state text NOT NULL, reason text NOT NULL, UNIQUE (source, number));
    CREATE TABLE IF NOT EXISTS {SCHEMA}.changes ("offset" bigint PRIMARY KEY, source text NOT NULL,
        tenant text NOT NULL, partition int NOT NULL, epoch bigint NOT NULL, seq bigint NOT NULL,
        event_id text NOT NULL,
        collection text NOT NULL, key text NOT NULL, op text NOT NULL, before bytea, after bytea,
        before_known boolean NOT NULL, time_ms bigint NOT NULL, appended_ms bigint NOT NULL,
        "transaction" text NOT NULL,
        UNIQUE (source, event_id));
    CREATE TABLE IF NOT EXISTS {SCHEMA}.images (source text NOT NULL, collection text NOT NULL,
        key text COLLATE "C" NOT NULL, image bytea NOT NULL, PRIMARY KEY (source, collection, key));
    CREATE TABLE IF NOT EXISTS {SCHEMA}.quarantine (number bigserial PRIMARY KEY, source text NOT NULL,
        event_id text NOT NULL, reason text NOT NULL, excerpt text NOT NULL, time_ms bigint NOT NULL,
        UNIQUE (source, event_id));
    CREATE TABLE IF NOT EXISTS {SCHEMA}.meta (key text PRIMARY KEY, value bigint NOT NULL);
    INSERT INTO {SCHEMA}.meta VALUES ('first', 1), ('last', 0) ON CONFLICT DO NOTHING;
"""  # noqa: S608 - a name of ours
_COLUMNS = (
    '"offset", source, tenant, partition, epoch, seq, event_id, collection, key, op, before, after, before_known,'
    ' time_ms, appended_ms, "transaction"'
)
_SOURCE = """SELECT name, kind, address, tenant, paused, options,
    (SELECT count(*) FROM partitions WHERE source = name) FROM sources"""
_PARTITION = "SELECT id, source, number, epoch, seq, state, reason FROM partitions"


class PostgresJournal:
    """Changes of external collections in a PostgreSQL database, in their own schema."""

    def __init__(self, address: str, *, clock: Clock | None = None) -> None:
        self.address = address
        self._place = psycopg.conninfo.make_conninfo(address, password="")
        self._clock = clock or SystemClock()
        self._lock = RLock()
        self._done = False
        with translate_connect_errors(self._place):
            self._db = self._connect()
            with self._db.transaction():
                self._lock_appends()
                self._db.execute(_TABLES)

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        db = psycopg.connect(self.address, autocommit=True)
        db.execute(f"SET search_path = {SCHEMA}")
        db.execute(f"LISTEN {NOTIFY_CHANNEL}")
        return db

    def _lock_appends(self) -> None:
        self._db.execute("SELECT pg_advisory_xact_lock(%s)", (APPEND_LOCK_KEY,))

    # --- sources --------------------------------------------------------------------------------------------

    def add_source(self, source: Source) -> None:
        with self._writing() as db:
            values = (source.name, source.kind, source.address, source.tenant, source.paused)
            done = db.execute(
                "INSERT INTO sources VALUES (%s, %s, %s, %s, %s, %s, NULL) ON CONFLICT DO NOTHING",
                (*values, json.dumps(dict(source.options))),
            )
            if done.rowcount == 0:
                raise name_taken(source.name)
            epoch = timestamp_to_ms(self._clock.now())
            self._many(
                "INSERT INTO partitions (source, number, epoch, seq, state, reason) VALUES (%s, %s, %s, 0, 'live', '')",
                [(source.name, number, epoch) for number in range(source.partitions)],
            )

    def remove_source(self, name: str) -> None:
        with self._writing() as db:
            if db.execute("DELETE FROM sources WHERE name = %s", (name,)).rowcount == 0:
                raise unknown_source(name)
            db.execute("DELETE FROM partitions WHERE source = %s", (name,))
            db.execute("DELETE FROM changes WHERE source = %s", (name,))
            db.execute("DELETE FROM images WHERE source = %s", (name,))
            db.execute("DELETE FROM quarantine WHERE source = %s", (name,))

    def set_paused(self, name: str, paused: bool) -> None:
        with self._writing() as db:
            if db.execute("UPDATE sources SET paused = %s WHERE name = %s", (paused, name)).rowcount == 0:
                raise unknown_source(name)

    def sources(self) -> list[Source]:
        with self._reading() as db:
            return [_source(row) for row in db.execute(f"{_SOURCE} ORDER BY name").fetchall()]

    def source(self, name: str) -> Source:
        with self._reading() as db:
            row = db.execute(f"{_SOURCE} WHERE name = %s", (name,)).fetchone()
        if row is None:
            raise unknown_source(name)
        return _source(row)

    # --- readers --------------------------------------------------------------------------------------------

    def append(self, source: str, events: Sequence[SourceEvent], token: str | None) -> AppendResult:
        with self._writing() as db:
            owner = self.source(source)
            plan = plan_append(
                owner,
                self.partitions(source),
                events,
                self._known_ids(source, [event.event_id for event in events]),
                self._images(source, keys_by_collection(events)),
                timestamp_to_ms(self._clock.now()),
            )
            first = self.last_offset() + 1
            rows = [row._replace(offset=first + place) for place, row in enumerate(plan.rows)]
            with db.cursor().copy(f"COPY changes ({_COLUMNS}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            self._many("UPDATE partitions SET seq = %s WHERE id = %s", [(s, p) for p, s in plan.seqs.items()])
            self._many(
                "INSERT INTO images VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (source, collection, key) DO UPDATE SET image = excluded.image",
                [(source, *name, image) for name, image in plan.images.items() if image is not None],
            )
            self._many(
                "DELETE FROM images WHERE source = %s AND collection = %s AND key = %s",
                [(source, *name) for name, image in plan.images.items() if image is None],
            )
            if token is not None:
                db.execute("UPDATE sources SET token = %s WHERE name = %s", (token, source))
            last = first - 1 + len(rows)
            db.execute("UPDATE meta SET value = %s WHERE key = 'last'", (last,))
            if rows:
                db.execute(f"NOTIFY {NOTIFY_CHANNEL}")
        return AppendResult(offset=last, appended=len(rows), repeated=plan.duplicates)

    def _many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            with self._db.cursor() as cursor:
                cursor.executemany(statement, rows)

    def _known_ids(self, source: str, ids: list[str]) -> set[str]:
        found = self._db.execute(
            "SELECT event_id FROM changes WHERE source = %s AND event_id = ANY(%s)", (source, ids)
        )
        return {id for (id,) in found}

    def _images(self, source: str, names: Mapping[str, Collection[str]]) -> dict[DocumentKey, bytes]:
        found: dict[DocumentKey, bytes] = {}
        for collection, keys in names.items():
            rows = self._db.execute(
                "SELECT key, image FROM images WHERE source = %s AND collection = %s AND key = ANY(%s)",
                (source, collection, list(keys)),
            )
            found |= {(collection, key): bytes(image) for key, image in rows}
        return found

    def resume_token(self, source: str) -> str | None:
        with self._reading() as db:
            row = db.execute("SELECT token FROM sources WHERE name = %s", (source,)).fetchone()
        if row is None:
            raise unknown_source(source)
        token: str | None = row[0]
        return token

    def image_keys(self, source: str, collection: str) -> set[str]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT key FROM images WHERE source = %s AND collection = %s", (source, collection)
            )
            return {key for (key,) in rows}

    def images(self, source: str, collection: str, keys: Collection[str]) -> dict[str, bytes]:
        with self._reading():
            found = self._images(source, {collection: keys})
        return {key: image for (_, key), image in found.items()}

    def delete_images(self, source: str) -> None:
        with self._writing() as db:
            db.execute("DELETE FROM images WHERE source = %s", (source,))

    def quarantine(self, item: QuarantinedChange) -> None:
        with self._writing() as db:
            db.execute(
                "INSERT INTO quarantine (source, event_id, reason, excerpt, time_ms) VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                (item.source, item.event_id, item.reason, item.excerpt, item.time_ms),
            )

    def quarantined(self, source: str, limit: int = 100) -> list[QuarantinedChange]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT event_id, reason, excerpt, time_ms FROM quarantine WHERE source = %s"
                " ORDER BY number DESC LIMIT %s",
                (source, limit),
            ).fetchall()
        return [
            QuarantinedChange(source=source, event_id=id, reason=reason, excerpt=excerpt, time_ms=time_ms)
            for id, reason, excerpt, time_ms in rows
        ]

    def quarantined_total(self) -> int:
        with self._reading() as db:
            row = db.execute("SELECT coalesce(max(number), 0) FROM quarantine").fetchone()
        assert row is not None
        return int(row[0])

    def set_state(
        self, source: str, state: PartitionState, reason: str = "", *, new_epoch: bool = False
    ) -> None:
        epoch = timestamp_to_ms(self._clock.now())
        with self._writing() as db:
            db.execute(
                "UPDATE partitions SET state = %s, reason = %s,"
                " epoch = CASE WHEN %s THEN greatest(epoch + 1, %s) ELSE epoch END WHERE source = %s",
                (state, reason, new_epoch, epoch, source),
            )

    def start_new_epoch(self, partition: int) -> None:
        epoch = timestamp_to_ms(self._clock.now())
        with self._writing() as db:
            db.execute(
                "UPDATE partitions SET epoch = greatest(epoch + 1, %s) WHERE id = %s", (epoch, partition)
            )

    # --- readers of the journal -----------------------------------------------------------------------------

    def partitions(self, source: str | None = None) -> list[Partition]:
        with self._reading() as db:
            rows = db.execute(
                f"{_PARTITION} WHERE %(name)s::text IS NULL OR source = %(name)s ORDER BY id",
                {"name": source},
            ).fetchall()
        return [
            Partition(id=id, source=name, number=number, epoch=epoch, seq=seq, state=state, reason=reason)
            for id, name, number, epoch, seq, state, reason in rows
        ]

    def read(
        self, after: int, upto: int, *, share: tuple[int, int] = (0, 1), limit: int | None = None
    ) -> Sequence[ChangeRow]:
        with self._reading() as db:
            rows = db.execute(
                f'SELECT {_COLUMNS} FROM changes WHERE "offset" > %s AND "offset" <= %s'  # noqa: S608 - names only
                ' AND partition %% %s = %s ORDER BY "offset" LIMIT %s',
                (after, upto, share[1], share[0], limit),
                binary=True,
            )
            found = [ChangeRow._make(row) for row in rows]
            first = self._number("first")
        if after + 1 < first and after < upto:
            raise trimmed(self._place, after, first)
        return found

    def end_within_limits(self, after: int, max_rows: int, max_bytes: int) -> int:
        with self._reading() as db:
            rows = db.execute(
                'SELECT "offset", coalesce(length(before), 0) + coalesce(length(after), 0) FROM changes'
                ' WHERE "offset" > %s ORDER BY "offset" LIMIT %s',
                (after, max_rows),
            ).fetchall()
        end, total = after, 0
        for offset, size in rows:
            total += size
            if end > after and total > max_bytes:
                break
            end = offset
        return end

    def backlog(self, offset: int) -> dict[int, PartitionBacklog]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT partition, count(*), min(appended_ms) FROM (SELECT partition, appended_ms FROM changes"
                ' WHERE "offset" > %s ORDER BY "offset" LIMIT %s) AS oldest GROUP BY partition',
                (offset, MAX_COUNTED_BACKLOG),
            ).fetchall()
        return {partition: PartitionBacklog(changes, oldest) for partition, changes, oldest in rows}

    def last_offset(self) -> int:
        with self._reading():
            return self._number("last")

    def wait_for_append(self, after: int, seconds: float) -> int:
        last = self.last_offset()
        if last > after:
            return last
        with self._reading() as db:
            for _ in db.notifies(timeout=seconds, stop_after=1):
                pass
        return self.last_offset()

    def snapshot(
        self, tenant: str, collection: str, *, after_key: str | None = None, limit: int = 1000
    ) -> SnapshotPage:
        with self._reading() as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            offset = self._number("last")
            rows = db.execute(
                "SELECT key, image FROM images JOIN sources ON name = source WHERE tenant = %(tenant)s"
                " AND collection = %(collection)s AND (%(key)s::text IS NULL OR key > %(key)s) ORDER BY key"
                " LIMIT %(limit)s",
                {"tenant": tenant, "collection": collection, "key": after_key, "limit": limit},
                binary=True,
            ).fetchall()
        return SnapshotPage(offset=offset, documents=tuple((key, bytes(image)) for key, image in rows))

    def collections(self, tenant: str) -> list[str]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT DISTINCT collection FROM images JOIN sources ON name = source WHERE tenant = %s ORDER BY 1",
                (tenant,),
            )
            return [name for (name,) in rows]

    def trim(self, before_ms: int) -> int:
        with self._writing() as db:
            young = db.execute(
                'SELECT "offset" FROM changes WHERE appended_ms >= %s ORDER BY "offset" LIMIT 1', (before_ms,)
            ).fetchone()
            first = int(young[0]) if young else self._number("last") + 1
            db.execute('DELETE FROM changes WHERE "offset" < %s', (first,))
            db.execute("UPDATE meta SET value = greatest(value, %s) WHERE key = 'first'", (first,))
            db.execute(
                "DELETE FROM quarantine WHERE number <= (SELECT max(number) FROM quarantine) - %s",
                (MAX_QUARANTINED,),
            )
        return first

    def close(self) -> None:
        with self._lock:
            self._done = True
            self._db.close()

    def _number(self, key: str) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE key = %s", (key,)).fetchone()
        assert row is not None
        return int(row[0])

    @contextmanager
    def _writing(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with self._reading() as db, db.transaction():
            self._lock_appends()
            yield db

    @contextmanager
    def _reading(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Return a live connection. A broken connection is discarded, and the next caller opens a new one."""
        with self._lock, translate_errors(self._place):
            if self._db.closed and not self._done:
                self._db = self._connect()
            yield self._db


def _source(row: tuple[Any, ...]) -> Source:
    name, kind, address, tenant, paused, options, count = row
    return Source(
        name=name,
        kind=kind,
        address=address,
        tenant=tenant,
        partitions=count,
        paused=paused,
        options=json.loads(options),
    )
