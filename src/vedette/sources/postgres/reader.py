"""Read the tables of a PostgreSQL database: a scan, then the replication slot.

Theory of operation. A slot keeps the changes that were not confirmed. `poll` *peeks* at them, appends them to the
journal, and only then advances the slot. After a crash in between, the same changes appear again, and those already
in the journal are skipped. A scan runs in one snapshot of the server, taken after the slot was created; transactions
that the snapshot saw are skipped in the slot, so scan and stream join without gap or overlap. Each table has its own
snapshot: a table that appears later, or changes its name or key, is scanned alone.

A slot belongs to one reader. A slot that is ahead of the position in the journal was read by another program, or was
recreated without a complete scan. In both cases changes are lost, and `poll` raises E6105.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from vedette.clock import Clock
from vedette.errors import SourceError
from vedette.hashing import text_hash
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.postgres.pgoutput import Relation
from vedette.sources.postgres.position import SlotPosition, WatchedTable, lsn_text
from vedette.sources.postgres.tables import identifier, list_tables, select_tables
from vedette.sources.postgres.transactions import TableChanged, TransactionAssembler, collection_of
from vedette.sources.postgres.values import SESSION_SETTINGS, TextDecoder, key_text
from vedette.sources.reader import MAX_APPEND_EVENTS, ScannedDocument, append_scan_diff, encode_or_quarantine
from vedette.sources.records import Source
from vedette.values import timestamp_to_ms

__all__ = ["PostgresReader"]

TABLE_CHECK_SECONDS = 10.0
"""Seconds between two checks of an idle reader for new tables. The check also advances the slot."""
LOCK_TIMEOUT = "1s"
"""Maximum wait for the lock on a new table. Writers of the table queue behind this wait."""
FETCH_ROWS = 200
"""Rows or messages that a cursor fetches at once."""
CONNECTION_OPTIONS: dict[str, Any] = {
    "application_name": "vedette",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A dead server is detected within about a minute. Options in the address take precedence."""


class PostgresReader:
    """Reads one database. Options: `tables` (comma-separated, `schema.name`; default all of `public`), `slot`."""

    def __init__(self, source: Source, journal: CollectionJournal, clock: Clock) -> None:
        self._source, self._journal, self._clock = source, journal, clock
        self._slot = source.options.get("slot", f"vedette_{source.name}")
        self._chosen = [part.strip() for part in source.options.get("tables", "").split(",") if part.strip()]
        self._decoder = TextDecoder()
        self._next_collection_check = 0.0
        with _translate_errors(source.address):
            self._db = self._connect()

    def _connect(self) -> psycopg.Connection[Any]:
        given = psycopg.conninfo.conninfo_to_dict(self._source.address)
        db = psycopg.connect(**{**CONNECTION_OPTIONS, **given}, autocommit=True)
        for name, value in SESSION_SETTINGS.items():
            db.execute("SELECT set_config(%s, %s, false)", (name, value))
        return db

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Return a live connection. A broken connection is discarded, and the next poll opens a new one."""
        with _translate_errors(self._source.address):
            if self._db.closed:
                self._db = self._connect()
            yield

    def close(self) -> None:
        self._db.close()

    def release_server_resources(self) -> None:
        """Drop the slot and the publication. A slot without a reader would retain the server's WAL forever."""
        with self._connected():
            if self._owns_slot():
                self._drop_slot()
                self._db.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self._slot)))

    # --- the beginning --------------------------------------------------------------------------------------

    def start(self, *, scan: bool) -> None:
        with self._connected():
            if not self._owns_slot():
                raise SourceError("E6106", SLOT_TAKEN.format(slot=self._slot))
            tables = select_tables(self._db, self._chosen)
            if not tables:
                raise SourceError(
                    "E6106",
                    "the database has no selected table with a primary key: add a key, or change the option tables",
                )
            self._drop_slot()
            self._publish(tables.values())
            row = self._db.execute(
                "SELECT lsn - '0/0'::pg_lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')",
                (self._slot,),
            ).fetchone()
            assert row is not None
            position = SlotPosition(lsn=int(row[0]), tables=tables)
            if scan:
                gone = self._journal.collections(self._source.tenant)
                position = position.with_tables(self._scan(tables.values(), gone))
        self._journal.append(self._source.name, [], position.token)

    def _drop_slot(self) -> None:
        self._db.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            (self._slot,),
        )

    def _publish(self, tables: Iterable[WatchedTable]) -> None:
        name = sql.Identifier(self._slot)
        with self._db.transaction():
            self._db.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(name))
            self._db.execute(
                sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)").format(
                    name, sql.SQL(", ").join(map(identifier, tables))
                )
            )
            self._db.execute(
                sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(name, sql.Literal(self._owner()))
            )

    def _owner(self) -> str:
        """Return a text that identifies this source and journal. It must not reveal the address of the journal."""
        return f"Vedette, source {self._source.name} {text_hash(self._journal.address):016x}"

    def _owns_slot(self) -> bool:
        """True if the slot does not exist or was created by this source.

        The comment on the publication names the owner. If the publication is missing, the slot belongs to this source
        if the journal has a resume token for it.
        """
        row = self._db.execute(
            "SELECT obj_description(p.oid, 'pg_publication') FROM pg_replication_slots s LEFT JOIN pg_publication p"
            " ON p.pubname = s.slot_name WHERE s.slot_name = %s",
            (self._slot,),
        ).fetchone()
        if row is None or row[0] is None:
            return row is None or self._journal.resume_token(self._source.name) is not None
        return bool(row[0] == self._owner())

    # --- scans ----------------------------------------------------------------------------------------------

    def _scan(self, tables: Iterable[WatchedTable], gone: Iterable[str]) -> list[WatchedTable]:
        """Scan tables in one snapshot and append the differences. Returns the tables with that snapshot.

        `gone` are further collections to compare; their documents are deleted if no table has them.
        """
        tables = list(tables)
        with self._db.transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = self._db.execute(
                "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
            ).fetchone()
            assert row is not None
            collections = {*gone, *map(self._collection, tables)}
            documents = (document for table in tables for document in self._scan_table(table))
            append_scan_diff(self._journal, self._source.name, documents, sorted(collections), self._now_ms())
        return [
            WatchedTable(
                oid=table.oid,
                schema=table.schema,
                name=table.name,
                keys=table.keys,
                snapshot=str(row[0]),
                scan_lsn=int(row[1]),
            )
            for table in tables
        ]

    def _scan_table(self, table: WatchedTable) -> Iterator[ScannedDocument]:
        collection = self._collection(table)
        for row in self._rows(table):
            key = key_text([row[name] for name in table.keys])
            document = {"id": key, **row}  # a column named id takes precedence
            image = encode_or_quarantine(
                self._journal, self._source.name, f"scan:{collection}:{key}", document, self._now_ms()
            )
            if image is not None:
                yield ScannedDocument(collection, key, image)

    def _rows(self, table: WatchedTable) -> Iterator[dict[str, Any]]:
        """Yield rows as documents. Values are decoded from text, because psycopg cannot represent all of them."""
        self._db.execute(
            sql.SQL("DECLARE vedette_scan NO SCROLL CURSOR FOR SELECT * FROM {}").format(identifier(table))
        )
        while True:
            result = self._db.execute(f"FETCH {FETCH_ROWS} FROM vedette_scan").pgresult
            assert result is not None
            columns = [
                ((result.fname(column) or b"").decode(), result.ftype(column), column)
                for column in range(result.nfields)
            ]
            for row in range(result.ntuples):
                yield {
                    name: self._decoder.decode(type_, result.get_value(row, column))
                    for name, type_, column in columns
                }
            if not result.ntuples:
                break
        self._db.execute("CLOSE vedette_scan")

    # --- the stream -----------------------------------------------------------------------------------------

    def poll(self, seconds: float) -> tuple[int, int]:
        """Append the next transactions, then advance the slot. A large transaction is appended in pieces."""
        position = SlotPosition.parse(self._journal.resume_token(self._source.name))
        with self._connected():
            position = self._verify_slot(position)
            end = self._log_end()
            assembler = self._transactions(position)
            try:
                self._peek(assembler)
            except TableChanged as changed:
                assembler.flush()
                self._rescan_tables(assembler.position, [changed.oid])
            assembler.flush()
            if assembler.position.lsn > position.lsn:
                self._advance(assembler.position)
            elif not assembler.messages:
                self._idle(position, end, seconds)
        return assembler.events, assembler.bytes

    def _transactions(self, position: SlotPosition) -> TransactionAssembler:
        relations: dict[int, Relation] = {}  # the server sends them again at every peek
        return TransactionAssembler(
            self._source, self._journal, position, relations, self._fetch_columns, self._now_ms
        )

    def _peek(self, assembler: TransactionAssembler) -> None:
        with self._db.transaction(), self._db.cursor(name="vedette_changes") as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(
                "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1',"
                " 'publication_names', %s)",
                (self._slot, MAX_APPEND_EVENTS, self._slot),
            )
            for (data,) in cursor:
                assembler.feed(bytes(data))

    def _advance(self, position: SlotPosition) -> None:
        self._db.execute("SELECT pg_replication_slot_advance(%s, %s)", (self._slot, lsn_text(position.lsn)))

    def _idle(self, position: SlotPosition, end: int, seconds: float) -> None:
        """Handle a poll without changes up to `end`: check for new tables and advance the slot from time to time.

        Without the advance, idle tables on a busy server would retain its whole WAL.
        """
        now = self._clock.monotonic()
        if now >= self._next_collection_check:
            self._next_collection_check = now + TABLE_CHECK_SECONDS
            position = self._refresh_tables(position)
            if end > position.lsn:
                position = SlotPosition(lsn=end, tables=position.tables)
                self._journal.append(self._source.name, [], position.token)
                self._advance(position)
        if seconds:
            self._wait_for_wal(seconds)

    def _wait_for_wal(self, seconds: float) -> None:
        """Wait until the server's WAL has grown, or until the timeout. SQL has no notification for slots."""
        end = self._clock.monotonic() + seconds
        first = self._log_end()
        while self._clock.monotonic() < end and self._log_end() == first:
            self._db.execute("SELECT pg_sleep(0.02)")

    def _log_end(self) -> int:
        """Return the LSN up to which the slot can be decoded."""
        row = self._db.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(row[0])

    def _verify_slot(self, position: SlotPosition | None) -> SlotPosition:
        """Return the position if the slot still has everything after it; else raise E6105."""
        row = self._db.execute(
            "SELECT coalesce(wal_status, 'lost'), confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots"
            " WHERE slot_name = %s",
            (self._slot,),
        ).fetchone()
        if row is None or row[0] == "lost":
            raise self._lost("does not exist any more")
        if position is None or int(row[1]) > position.lsn:
            raise self._lost("was read by another program or was recreated")
        return position

    def _lost(self, what: str) -> SourceError:
        text = f"the slot {self._slot} {what}, so changes after the last position are lost"
        return SourceError("E6105", text, fields={"source": self._source.name})

    def _fetch_columns(self, table: WatchedTable, key: dict[str, Any], columns: list[str]) -> dict[str, Any]:
        """Return the current values of columns that a change did not include.

        They may be newer than the change. The later change that set them follows in the stream.
        """
        query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            identifier(table),
            sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in key),
        )
        try:
            with self._db.transaction():
                result = self._db.execute(query, list(key.values())).pgresult
        except psycopg.ProgrammingError:  # columns or tables that no longer exist
            return {}
        assert result is not None
        if not result.ntuples:
            return {}
        return {
            name: self._decoder.decode(result.ftype(column), result.get_value(0, column))
            for column, name in enumerate(columns)
        }

    # --- new, changed and dropped tables --------------------------------------------------------------------

    def _refresh_tables(self, position: SlotPosition) -> SlotPosition:
        there = list_tables(self._db)
        gone = [oid for oid in position.tables if oid not in there]
        changed = [
            oid
            for oid, table in position.tables.items()
            if oid in there and not table.has_same_key(there[oid][0])
        ]
        new = (
            []
            if self._chosen
            else [t for oid, t in select_tables(self._db, ()).items() if oid not in position.tables]
        )
        joined = [table.oid for table in new if self._publish_table(table)]
        return (
            self._rescan_tables(position, [*gone, *changed, *joined])
            if gone or changed or joined
            else position
        )

    def _publish_table(self, table: WatchedTable) -> bool:
        """Add a new table to the publication. Waits for current writers: their earlier changes would be in neither
        the scan nor the stream."""
        try:
            with self._db.transaction():
                self._db.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))
                self._db.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(identifier(table)))
                self._db.execute(
                    sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
                        sql.Identifier(self._slot), identifier(table)
                    )
                )
        except psycopg.errors.LockNotAvailable:
            return False
        except psycopg.errors.DuplicateObject:
            pass  # added by a reader that was killed before it scanned the table
        return True

    def _rescan_tables(self, position: SlotPosition, oids: list[int]) -> SlotPosition:
        """Scan tables as they are now. Documents of dropped or renamed tables are deleted."""
        there = list_tables(self._db)
        found: list[WatchedTable] = []
        for oid in oids:
            table, problem = there.get(oid, (None, ""))
            if problem:
                raise SourceError("E6106", f"the table {table.path if table else oid} {problem}")
            found += [table] if table is not None else []
        old = [self._collection(position.tables[oid]) for oid in oids if oid in position.tables]
        position = position.with_tables(self._scan(found, old), without=oids)
        self._journal.append(self._source.name, [], position.token)
        return position

    def _collection(self, table: WatchedTable) -> str:
        return collection_of(self._source.name, table.schema, table.name)

    def _now_ms(self) -> int:
        return timestamp_to_ms(self._clock.now())


SLOT_TAKEN = (
    "the server has a slot {slot} that this source did not create, and a slot can have only one reader: "
    "choose another with --option slot=NAME, or drop an unused slot with SELECT pg_drop_replication_slot('{slot}')"
)


@contextmanager
def _translate_errors(address: str) -> Iterator[None]:
    """Translate server errors: E6104 is retryable, E6106 needs an operator."""
    place = psycopg.conninfo.make_conninfo(address, password="")
    try:
        yield
    except psycopg.OperationalError as problem:
        text = f"{place} does not answer ({' '.join(str(problem).split())})"
        raise SourceError("E6104", text, fields={"place": place}) from problem
    except psycopg.Error as problem:
        raise SourceError(
            "E6106", f"{place} rejected a statement ({' '.join(str(problem).split())})"
        ) from problem
