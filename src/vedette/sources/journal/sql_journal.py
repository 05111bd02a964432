"""The journal in a SQLite file or a PostgreSQL schema. `seam.py` describes the methods."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vedette.clock import Clock, SystemClock
from vedette.sources.journal.append_plan import AppendPlan, DocumentKey, keys_by_collection, plan_append
from vedette.sources.journal.seam import name_taken, trimmed, unknown_source
from vedette.sources.journal.tables import CHANGE_COLUMNS
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
from vedette.storage.sql_database import NO_LIMIT, SqlDatabase, SqlTransaction
from vedette.values import timestamp_to_ms

__all__ = ["SqlJournal"]

_SOURCE = """SELECT name, kind, address, tenant, paused, options,
    (SELECT count(*) FROM partitions WHERE source = name) FROM sources"""
_PARTITION = "SELECT id, source, number, epoch, seq, state, reason FROM partitions"
_READ = f"""SELECT {", ".join(CHANGE_COLUMNS)} FROM changes WHERE "offset" > ? AND "offset" <= ? AND partition % ? = ?
    ORDER BY "offset" LIMIT ?"""  # noqa: S608 - column names only
_SIZES = """SELECT "offset", coalesce(length(before), 0) + coalesce(length(after), 0) FROM changes
    WHERE "offset" > ? ORDER BY "offset" LIMIT ?"""
_BACKLOG = """SELECT partition, count(*), min(appended_ms) FROM
    (SELECT partition, appended_ms FROM changes WHERE "offset" > ? ORDER BY "offset" LIMIT ?) AS oldest
    GROUP BY partition"""
_PUT_IMAGE = """INSERT INTO images VALUES (?, ?, ?, ?)
    ON CONFLICT (source, collection, key) DO UPDATE SET image = excluded.image"""
_PAGE = "SELECT key, image FROM images JOIN sources ON name = source WHERE tenant = ? AND collection = ?"


class SqlJournal:
    """Changes of external collections in the tables of `tables.py`. Implements `CollectionJournal`."""

    def __init__(self, database: SqlDatabase, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    @property
    def address(self) -> str:
        return self._database.address

    # --- sources --------------------------------------------------------------------------------------------

    def add_source(self, source: Source) -> None:
        values = (source.name, source.kind, source.address, source.tenant, source.paused)
        with self._database.write() as db:
            added = db.execute(
                "INSERT INTO sources VALUES (?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING RETURNING name",
                (*values, json.dumps(dict(source.options))),
            )
            if not added:
                raise name_taken(source.name)
            epoch = self._now_ms()
            db.execute_many(
                "INSERT INTO partitions (source, number, epoch, seq, state, reason) VALUES (?, ?, ?, 0, 'live', '')",
                [(source.name, number, epoch) for number in range(source.partitions)],
            )

    def remove_source(self, name: str) -> None:
        with self._database.write() as db:
            if not db.execute("DELETE FROM sources WHERE name = ? RETURNING name", (name,)):
                raise unknown_source(name)
            for table in ("partitions", "changes", "images", "quarantine"):
                db.execute(f"DELETE FROM {table} WHERE source = ?", (name,))  # noqa: S608 - a constant name

    def set_paused(self, name: str, paused: bool) -> None:
        with self._database.write() as db:
            if not db.execute("UPDATE sources SET paused = ? WHERE name = ? RETURNING name", (paused, name)):
                raise unknown_source(name)

    def sources(self) -> list[Source]:
        with self._database.read() as db:
            return [_source_from_row(row) for row in db.execute(f"{_SOURCE} ORDER BY name")]

    def source(self, name: str) -> Source:
        with self._database.read() as db:
            return _find_source(db, name)

    # --- readers --------------------------------------------------------------------------------------------

    def append(self, source: str, events: Sequence[SourceEvent], token: str | None) -> AppendResult:
        with self._database.write() as db:
            plan = plan_append(
                _find_source(db, source),
                _find_partitions(db, source),
                events,
                _known_event_ids(db, source, events),
                _find_images(db, source, keys_by_collection(events)),
                self._now_ms(),
            )
            last = _write_plan(db, source, plan)
            if token is not None:
                db.execute("UPDATE sources SET token = ? WHERE name = ?", (token, source))
        return AppendResult(offset=last, appended=len(plan.rows), duplicates=plan.duplicates)

    def resume_token(self, source: str) -> str | None:
        with self._database.read() as db:
            rows = db.execute("SELECT token FROM sources WHERE name = ?", (source,))
        if not rows:
            raise unknown_source(source)
        token: str | None = rows[0][0]
        return token

    def image_keys(self, source: str, collection: str) -> set[str]:
        with self._database.read() as db:
            rows = db.execute(
                "SELECT key FROM images WHERE source = ? AND collection = ?", (source, collection)
            )
        return {key for (key,) in rows}

    def images(self, source: str, collection: str, keys: Collection[str]) -> dict[str, bytes]:
        with self._database.read() as db:
            found = _find_images(db, source, {collection: keys})
        return {key: image for (_, key), image in found.items()}

    def delete_images(self, source: str) -> None:
        with self._database.write() as db:
            db.execute("DELETE FROM images WHERE source = ?", (source,))

    def quarantine(self, item: QuarantinedChange) -> None:
        with self._database.write() as db:
            db.execute(
                "INSERT INTO quarantine (source, event_id, reason, excerpt, time_ms) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (item.source, item.event_id, item.reason, item.excerpt, item.time_ms),
            )

    def quarantined(self, source: str, limit: int = 100) -> list[QuarantinedChange]:
        with self._database.read() as db:
            rows = db.execute(
                "SELECT event_id, reason, excerpt, time_ms FROM quarantine WHERE source = ?"
                " ORDER BY number DESC LIMIT ?",
                (source, limit),
            )
        return [
            QuarantinedChange(source=source, event_id=id, reason=reason, excerpt=excerpt, time_ms=time_ms)
            for id, reason, excerpt, time_ms in rows
        ]

    def quarantined_total(self) -> int:
        with self._database.read() as db:
            ((number,),) = db.execute("SELECT coalesce(max(number), 0) FROM quarantine")
        return int(number)

    def set_state(
        self, source: str, state: PartitionState, reason: str = "", *, new_epoch: bool = False
    ) -> None:
        with self._database.write() as db:
            if new_epoch:
                db.execute(
                    "UPDATE partitions SET epoch = greatest(epoch + 1, ?) WHERE source = ?",
                    (self._now_ms(), source),
                )
            db.execute(
                "UPDATE partitions SET state = ?, reason = ? WHERE source = ?", (state, reason, source)
            )

    def start_new_epoch(self, partition: int) -> None:
        with self._database.write() as db:
            db.execute(
                "UPDATE partitions SET epoch = greatest(epoch + 1, ?) WHERE id = ?",
                (self._now_ms(), partition),
            )

    # --- readers of the journal -----------------------------------------------------------------------------

    def partitions(self, source: str | None = None) -> list[Partition]:
        with self._database.read() as db:
            return _find_partitions(db, source)

    def read(
        self, after: int, upto: int, *, share: tuple[int, int] = (0, 1), limit: int | None = None
    ) -> Sequence[ChangeRow]:
        with self._database.read() as db:
            rows = db.execute(_READ, (after, upto, share[1], share[0], NO_LIMIT if limit is None else limit))
            # Read after the rows: a trim between the two statements is then noticed.
            first = _meta(db, "first")
        if after + 1 < first and after < upto:
            raise trimmed(self._database.place, after, first)
        return ChangeRow.from_rows(rows)

    def end_within_limits(self, after: int, max_rows: int, max_bytes: int) -> int:
        with self._database.read() as db:
            rows = db.execute(_SIZES, (after, max_rows))
        end, total = after, 0
        for offset, size in rows:
            total += size
            if end > after and total > max_bytes:
                break
            end = offset
        return end

    def backlog(self, offset: int) -> dict[int, PartitionBacklog]:
        with self._database.read() as db:
            rows = db.execute(_BACKLOG, (offset, MAX_COUNTED_BACKLOG))
        return {partition: PartitionBacklog(changes, oldest) for partition, changes, oldest in rows}

    def last_offset(self) -> int:
        with self._database.read() as db:
            return _meta(db, "last")

    def wait_for_append(self, after: int, seconds: float) -> int:
        end = self._clock.monotonic() + seconds
        while True:
            # Read before the offset: an append between the two statements then ends the wait at once.
            counter = self._database.change_counter()
            last = self.last_offset()
            left = end - self._clock.monotonic()
            if last > after or left <= 0:
                return last
            self._database.wait_for_commit(counter, left)

    def snapshot(
        self, tenant: str, collection: str, *, after_key: str | None = None, limit: int = 1000
    ) -> SnapshotPage:
        with self._database.snapshot() as db:
            offset = _meta(db, "last")
            if after_key is None:
                rows = db.execute(f"{_PAGE} ORDER BY key LIMIT ?", (tenant, collection, limit))
            else:
                rows = db.execute(
                    f"{_PAGE} AND key > ? ORDER BY key LIMIT ?", (tenant, collection, after_key, limit)
                )
        return SnapshotPage(offset=offset, documents=tuple((key, image) for key, image in rows))

    def collections(self, tenant: str) -> list[str]:
        with self._database.read() as db:
            rows = db.execute(
                "SELECT DISTINCT collection FROM images JOIN sources ON name = source WHERE tenant = ? ORDER BY 1",
                (tenant,),
            )
        return [name for (name,) in rows]

    def trim(self, before_ms: int) -> int:
        with self._database.write() as db:
            kept = db.execute(
                'SELECT "offset" FROM changes WHERE appended_ms >= ? ORDER BY "offset" LIMIT 1', (before_ms,)
            )
            first = int(kept[0][0]) if kept else _meta(db, "last") + 1
            db.execute('DELETE FROM changes WHERE "offset" < ?', (first,))
            db.execute("UPDATE meta SET value = greatest(value, ?) WHERE key = 'first'", (first,))
            db.execute(
                "DELETE FROM quarantine WHERE number <= (SELECT max(number) FROM quarantine) - ?",
                (MAX_QUARANTINED,),
            )
        return first

    def close(self) -> None:
        self._database.close()

    def _now_ms(self) -> int:
        return timestamp_to_ms(self._clock.now())


def _write_plan(db: SqlTransaction, source: str, plan: AppendPlan) -> int:
    """Write the rows of an append with consecutive offsets. Returns the last offset of the journal.

    The write transaction excludes other writers, so offsets become visible in order.
    """
    first = _meta(db, "last") + 1
    last = first + len(plan.rows) - 1
    db.bulk_insert(
        "changes", CHANGE_COLUMNS, [(first + number, *row[1:]) for number, row in enumerate(plan.rows)]
    )
    db.execute_many(
        "UPDATE partitions SET seq = ? WHERE id = ?", [(seq, id) for id, seq in plan.seqs.items()]
    )
    db.execute_many(
        _PUT_IMAGE,
        # Sorted, so that neighbouring images are written to the same page one after the other.
        [(source, *key, image) for key, image in sorted(plan.images.items()) if image is not None],
    )
    db.execute_many(
        "DELETE FROM images WHERE source = ? AND collection = ? AND key = ?",
        [(source, *key) for key, image in plan.images.items() if image is None],
    )
    if plan.rows:
        db.execute("UPDATE meta SET value = ? WHERE key = 'last'", (last,))
        db.notify()
    return last


def _known_event_ids(db: SqlTransaction, source: str, events: Sequence[SourceEvent]) -> set[str]:
    rows = db.execute(
        "SELECT event_id FROM changes WHERE source = ? AND event_id = ANY(?)",
        (source, [event.event_id for event in events]),
    )
    return {id for (id,) in rows}


def _find_images(
    db: SqlTransaction, source: str, keys_by_collection: Mapping[str, Collection[str]]
) -> dict[DocumentKey, bytes]:
    found: dict[DocumentKey, bytes] = {}
    for collection, keys in keys_by_collection.items():
        rows = db.execute(
            "SELECT key, image FROM images WHERE source = ? AND collection = ? AND key = ANY(?)",
            (source, collection, list(keys)),
        )
        found |= {(collection, key): image for key, image in rows}
    return found


def _find_source(db: SqlTransaction, name: str) -> Source:
    rows = db.execute(f"{_SOURCE} WHERE name = ?", (name,))
    if not rows:
        raise unknown_source(name)
    return _source_from_row(rows[0])


def _source_from_row(row: tuple[Any, ...]) -> Source:
    name, kind, address, tenant, paused, options, partitions = row
    return Source(
        name=name,
        kind=kind,
        address=address,
        tenant=tenant,
        partitions=partitions,
        paused=bool(paused),
        options=json.loads(options),
    )


def _find_partitions(db: SqlTransaction, source: str | None) -> list[Partition]:
    if source is None:
        rows = db.execute(f"{_PARTITION} ORDER BY id")
    else:
        rows = db.execute(f"{_PARTITION} WHERE source = ? ORDER BY id", (source,))
    return [
        Partition(id=id, source=name, number=number, epoch=epoch, seq=seq, state=state, reason=reason)
        for id, name, number, epoch, seq, state, reason in rows
    ]


def _meta(db: SqlTransaction, key: str) -> int:
    ((value,),) = db.execute("SELECT value FROM meta WHERE key = ?", (key,))
    return int(value)
