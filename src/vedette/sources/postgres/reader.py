"""Reads the tables of a PostgreSQL database: a scan, then the slot.

Theory of operation. A slot keeps the changes that we have not confirmed. `poll` *peeks* at them, appends them to the
journal, and only then moves the slot on; a crash in between shows us the same changes again, under the same ids. A
scan runs in one snapshot of the server, taken after the slot was made; transactions that the snapshot already saw are
passed over when they come out of the slot, so the two join without gap and without overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.adapt import Transformer
from psycopg.pq import Format

from vedette.clock import Clock
from vedette.errors import SourceError
from vedette.sources.journal import CollectionJournal
from vedette.sources.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Column,
    Commit,
    Deleted,
    Inserted,
    Relation,
    Truncated,
    Updated,
    read_message,
)
from vedette.sources.reader import CHUNK, Document, append_scan, image_or_quarantine
from vedette.sources.records import Source, SourceEvent
from vedette.values import INT_MAX, timestamp_to_ms

__all__ = ["PostgresReader"]

_EPOCH_MS = 946_684_800_000
"""2000-01-01 in ms: where PostgreSQL's time begins."""
_FETCH = 2_000


class PostgresReader:
    """Options of the source: `tables` (comma-separated, `schema.name`; default all of `public`), `slot`."""

    def __init__(self, source: Source, journal: CollectionJournal, clock: Clock) -> None:
        self._source, self._journal, self._clock = source, journal, clock
        self._slot = source.options.get("slot", f"vedette_{source.name}")
        self._tables = [part.strip() for part in source.options.get("tables", "").split(",") if part.strip()]
        self._relations: dict[int, Relation] = {}
        self._types = Transformer()
        with _reaching(source.address):
            self._db = psycopg.connect(source.address, autocommit=True, application_name="vedette")

    def close(self) -> None:
        self._db.close()

    def forget(self) -> None:
        """Give the slot and the publication back: a slot that nobody reads keeps the server's log for ever."""
        with _reaching(self._source.address):
            self._drop_slot()
            self._db.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self._slot)))

    # --- the beginning --------------------------------------------------------------------------------------

    def begin(self, *, scan: bool) -> None:
        with _reaching(self._source.address):
            self._drop_slot()
            self._publish()
            self._db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._slot,))
            seen = self._scan() if scan else ""
        self._journal.append(self._source.name, [], _token(seen, 0))

    def _drop_slot(self) -> None:
        self._db.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            (self._slot,),
        )

    def _publish(self) -> None:
        name = sql.Identifier(self._slot)
        self._db.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(name))
        tables = sql.SQL(", ").join(map(_identifier, self._watched()))
        self._db.execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(name, tables))

    def _watched(self) -> list[str]:
        """The tables to watch; E6106 for one without a key, or when there is none."""
        rows = self._db.execute(
            "SELECT n.nspname || '.' || c.relname, EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid"
            " AND i.indisprimary) OR c.relreplident IN ('f', 'i') FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition"
            " AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
        ).fetchall()
        keyed: dict[str, bool] = dict(rows)
        wanted = [t if "." in t else f"public.{t}" for t in self._tables] or [
            name for name, has_key in rows if has_key and name.startswith("public.")
        ]
        for name in wanted:
            if not keyed.get(name):
                why = "has no primary key" if name in keyed else "does not exist"
                raise _refused(f"the table {name} {why}: a document needs a key to be known by")
        if not wanted:
            raise _refused("there is no table with a primary key to watch")
        return wanted

    def _scan(self) -> str:
        """Append what differs from the journal, and return the snapshot in which it was seen."""
        tables = self._watched()
        with self._db.transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = self._db.execute("SELECT pg_current_snapshot()::text").fetchone()
            assert row is not None
            snapshot = str(row[0])
            collections = [self._collection(*name.split(".", 1)) for name in tables]
            documents = (document for table in tables for document in self._scan_table(table))
            append_scan(self._journal, self._source.name, documents, collections, self._now())
        return snapshot

    def _scan_table(self, table: str) -> Iterator[Document]:
        collection = self._collection(*table.split(".", 1))
        keys = self._key_columns(table)
        with self._db.cursor(name="vedette_scan", binary=False) as cursor:
            cursor.itersize = _FETCH
            cursor.execute(sql.SQL("SELECT * FROM {}").format(_identifier(table)))
            for row in cursor:
                assert cursor.description is not None
                names = [column.name for column in cursor.description]
                document = {name: _plain(value) for name, value in zip(names, row, strict=True)}
                key = _key([document[name] for name in keys])
                image = image_or_quarantine(
                    self._journal, self._source.name, f"scan:{collection}:{key}", document, self._now()
                )
                if image is not None:
                    yield Document(collection, key, image)

    def _key_columns(self, table: str) -> list[str]:
        rows = self._db.execute(
            "SELECT a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a"
            " ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) WHERE c.oid = %s::regclass AND i.indisprimary"
            " ORDER BY a.attnum",
            (_identifier(table).as_string(self._db),),
        ).fetchall()
        return [name for (name,) in rows]

    # --- the stream -----------------------------------------------------------------------------------------

    def poll(self, seconds: float) -> tuple[int, int]:
        """Append whole transactions, then confirm them. A large one is appended in pieces, the place with the last."""
        events = size = 0
        with _reaching(self._source.address):
            self._check_slot()
            reading = _Transactions(self, _seen(self._journal.token(self._source.name)))
            with self._db.transaction(), self._db.cursor(name="vedette_changes") as cursor:
                cursor.itersize = _FETCH
                cursor.execute(
                    "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1',"
                    " 'publication_names', %s)",
                    (self._slot, CHUNK, self._slot),
                )
                for (data,) in cursor:
                    reading.take(bytes(data))
            events, size, end = reading.finished()
            if end:
                self._db.execute("SELECT pg_replication_slot_advance(%s, %s)", (self._slot, _lsn(end)))
            elif seconds:
                self._wait(seconds)
        return events, size

    def _wait(self, seconds: float) -> None:
        """Until the server's log has grown, or the time is over. A slot has no bell that rings in SQL."""
        end = self._clock.monotonic() + seconds
        first = self._log_end()
        while self._clock.monotonic() < end and self._log_end() == first:
            self._db.execute("SELECT pg_sleep(0.02)")

    def _log_end(self) -> Any:
        return self._db.execute("SELECT pg_current_wal_lsn()").fetchone()

    def _check_slot(self) -> None:
        row = self._db.execute(
            "SELECT coalesce(wal_status, 'lost') FROM pg_replication_slots WHERE slot_name = %s",
            (self._slot,),
        ).fetchone()
        if row is None or row[0] == "lost":
            text = f"the slot {self._slot} is gone, and with it the changes since we last read it"
            raise SourceError("E6105", text, fields={"source": self._source.name})

    def _collection(self, schema: str, table: str) -> str:
        return (
            f"{self._source.name}::{table}"
            if schema == "public"
            else f"{self._source.name}::{schema}.{table}"
        )

    def _now(self) -> int:
        return timestamp_to_ms(self._clock.now())


class _Transactions:
    """Puts the messages of one peek together and appends them, transaction by transaction."""

    def __init__(self, reader: PostgresReader, seen: str) -> None:
        self._reader = reader
        self._journal, self._source = reader._journal, reader._source
        self._seen = _Snapshot(seen) if seen else None
        self._relations = reader._relations
        self._events: list[SourceEvent] = []
        self._latest: dict[tuple[str, str], bytes | None] = {}
        self._begin = Begin(0, 0, 0)
        self._index = 0
        self._skipping = False
        self._count = self._size = self._end = 0

    def take(self, data: bytes) -> None:
        message = read_message(data)
        match message:
            case Begin():
                self._begin, self._index = message, 0
                self._skipping = self._seen is not None and self._seen.saw(message.xid)
            case Commit(end_lsn=end):
                self._end = end
            case Relation():
                self._relations[message.id] = message
            case None:
                pass
            case _ if not self._skipping:
                for event in self._of(message):
                    self._add(event)

    def finished(self) -> tuple[int, int, int]:
        if self._end:
            seen = self._seen.text if self._seen is not None else ""
            self._append(_token(seen, self._end))
        return self._count, self._size, self._end

    def _add(self, event: SourceEvent) -> None:
        self._events.append(event)
        self._latest[event.collection, event.key] = event.after
        if len(self._events) >= CHUNK:
            self._append(None)

    def _append(self, token: str | None) -> None:
        self._count += self._journal.append(self._source.name, self._events, token).appended
        self._size += sum(len(event.after or b"") for event in self._events)
        self._events = []

    def _of(self, message: Inserted | Updated | Deleted | Truncated) -> Iterator[SourceEvent]:
        if isinstance(message, Truncated):
            for id in message.relations:
                collection = self._collection(self._relations[id])
                for key in sorted(self._known_keys(collection)):
                    yield self._event(collection, key, None)
            return
        relation = self._relations[message.relation]
        collection = self._collection(relation)
        if isinstance(message, Deleted):
            yield self._event(collection, self._key(relation, message.old), None)
            return
        key = self._key(relation, message.new)
        old = self._key(relation, message.old) if isinstance(message, Updated) and message.old else key
        document = self._document(relation, message.new, collection, old)
        image = image_or_quarantine(
            self._journal, self._source.name, self._id(), document, self._reader._now()
        )
        if old != key:
            yield self._event(collection, old, None)
        if image is not None:
            yield self._event(collection, key, image, created=isinstance(message, Inserted) or old != key)

    def _event(self, collection: str, key: str, after: bytes | None, *, created: bool = False) -> SourceEvent:
        event = SourceEvent(
            event_id=self._id(),
            collection=collection,
            key=key,
            after=after,
            created=created,
            time_ms=_EPOCH_MS + self._begin.time_us // 1000,
            transaction=str(self._begin.xid),
        )
        self._index += 1
        return event

    def _id(self) -> str:
        """The commit's place in the log and the change's place in the transaction: the same however often we look."""
        return f"{self._begin.lsn:016x}:{self._index}"

    def _collection(self, relation: Relation) -> str:
        return self._reader._collection(relation.schema, relation.name)

    def _known_keys(self, collection: str) -> set[str]:
        keys = self._journal.image_keys(self._source.name, collection)
        for (name, key), image in self._latest.items():
            if name == collection:
                (keys.discard if image is None else keys.add)(key)
        return keys

    def _key(self, relation: Relation, row: tuple[Any, ...]) -> str:
        pairs = zip(relation.columns, row, strict=True)
        return _key([self._value(column, cell) for column, cell in pairs if column.key])

    def _document(
        self, relation: Relation, row: tuple[Any, ...], collection: str, key: str
    ) -> dict[str, Any]:
        document = {}
        for column, cell in zip(relation.columns, row, strict=True):
            if cell is UNCHANGED:
                document[column.name] = self._last(collection, key).get(column.name)
            else:
                document[column.name] = self._value(column, cell)
        return document

    def _last(self, collection: str, key: str) -> dict[str, Any]:
        from vedette.sources.images import decode_image

        image = self._latest.get((collection, key))
        if image is None:
            image = self._journal.images(self._source.name, collection, [key]).get(key)
        return decode_image(image) if image is not None else {}

    def _value(self, column: Column, cell: bytes | None) -> Any:
        if cell is None:
            return None
        return _plain(self._reader._types.get_loader(column.type, Format.TEXT).load(cell))


class _Snapshot:
    """`xmin:xmax:xip,…` of the server: which transactions a scan has seen."""

    def __init__(self, text: str) -> None:
        self.text = text
        low, high, running = text.split(":")
        self._low, self._high = int(low), int(high)
        self._running = {int(part) for part in running.split(",") if part}

    def saw(self, xid: int) -> bool:
        """Messages have the lower 32 bits of a transaction's number; the snapshot says which round they belong to."""
        whole = (self._high & ~0xFFFFFFFF) | xid
        if whole - self._high > 2**31:
            whole -= 2**32
        elif self._high - whole > 2**31:
            whole += 2**32
        return whole < self._low or (whole < self._high and whole not in self._running)


def _token(seen: str, lsn: int) -> str:
    return json.dumps({"lsn": _lsn(lsn), "scan": seen})


def _seen(token: str | None) -> str:
    return str(json.loads(token)["scan"]) if token is not None else ""


def _lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split(".", 1))


def _key(values: list[Any]) -> str:
    if len(values) == 1:
        return values[0] if isinstance(values[0], str) else json.dumps(values[0], default=str)
    return json.dumps(values, default=str)


def _plain(value: Any) -> Any:
    """A value of psycopg as a document may hold it."""
    match value:
        case Decimal():
            if value.is_finite() and value == value.to_integral_value() and abs(value) <= INT_MAX:
                return int(value)
            return float(value)
        case UUID():
            return str(value)
        case date() if type(value) is date:
            return value.isoformat()
        case time():
            return value.isoformat()
        case bytes() | memoryview():
            return bytes(value).hex()
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case None | bool() | int() | float() | str():
            return value
    from datetime import datetime, timedelta

    return value if isinstance(value, datetime | timedelta) else str(value)


@contextmanager
def _reaching(address: str) -> Iterator[None]:
    """Errors of the server as ours: E6104 to try again, E6106 for a person."""
    place = psycopg.conninfo.make_conninfo(address, password="")
    try:
        yield
    except psycopg.OperationalError as problem:
        text = f"{place} does not answer ({' '.join(str(problem).split())})"
        raise SourceError("E6104", text, fields={"place": place}) from problem
    except psycopg.Error as problem:
        raise _refused(f"{place} refused ({' '.join(str(problem).split())})") from problem


def _refused(why: str) -> SourceError:
    return SourceError("E6106", why)
