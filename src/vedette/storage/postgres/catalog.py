"""The databases of a PostgreSQL server: one schema per database, and a table that lists them.

    vedette.databases (name, schema)     the list of databases
    vedette.home (key, value)            `format`: the version of this layout
    "vedette_<name>".*                   one database; tables as in vedette.storage.sqlite.migrations

The engine lock is an advisory lock of a dedicated connection and ends with it. If the connection breaks, the lock is
acquired again before any other connection is opened. An engine that lost the lock to another one is refused by the boot
count of the store. Use a direct address, not a pooler that shares sessions.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from threading import Lock

import psycopg
from psycopg import sql

from vedette.clock import Clock, SystemClock
from vedette.errors import StoreError
from vedette.storage.meta import LAST_BATCH_KEY, VERSION_KEY, initial_meta
from vedette.storage.names import listing_order, validate_name
from vedette.storage.postgres.connections import Connection, ConnectionPool, display_url
from vedette.storage.postgres.errors import translate_connect_errors, translate_errors
from vedette.storage.postgres.store import PostgresStore
from vedette.storage.seam import Durability
from vedette.storage.sqlite.migrations import POSTGRES_MIGRATIONS, Migration, pending_migrations

__all__ = ["PostgresCatalog", "schema_name"]

FORMAT_VERSION = 1
ADVISORY_LOCK = (0x5645, 0x4454)
LOCK_PAUSES_SECONDS = (0.05, 0.15, 0.3)
MAX_IDENTIFIER_BYTES = 63

_HOLDER = """SELECT activity.application_name FROM pg_locks AS lock JOIN pg_stat_activity AS activity USING (pid)
    WHERE lock.locktype = 'advisory' AND lock.granted AND (lock.classid, lock.objid) = (%s, %s)
    AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_SET_UP = (
    "CREATE SCHEMA IF NOT EXISTS vedette",
    "CREATE TABLE IF NOT EXISTS vedette.home (key text PRIMARY KEY, value text NOT NULL)",
    """CREATE TABLE IF NOT EXISTS vedette.databases (
        name text COLLATE "C" PRIMARY KEY, schema text COLLATE "C" NOT NULL UNIQUE)""",
    "INSERT INTO vedette.home (key, value) VALUES ('format', '1') ON CONFLICT DO NOTHING",
)


class PostgresCatalog:
    """The databases at one PostgreSQL URL, locked for this engine until `close`."""

    def __init__(
        self,
        url: str,
        *,
        durability: Durability = "fsync",
        clock: Clock | None = None,
        migrations: tuple[Migration, ...] = POSTGRES_MIGRATIONS,
    ) -> None:
        self.place = display_url(url)
        self._clock, self._migrations = clock or SystemClock(), migrations
        self._stores: dict[str, PostgresStore] = {}
        self._opening = Lock()
        application = f"vedette engine pid {os.getpid()} on {socket.gethostname()}"[:MAX_IDENTIFIER_BYTES]
        self._connections = ConnectionPool(url, durability=durability, application=application)
        self._lock_connection: Connection | None = None
        self._guard_lock = Lock()
        try:
            with translate_connect_errors(self.place):
                self._ensure_lock()
                self._set_up()
        except BaseException:
            self.close()
            raise
        self._connections.before_connect = self._ensure_lock

    def open(self, name: str) -> PostgresStore:
        validate_name(name)
        place = f"the database {name!r} of {self.place}"
        with self._opening, translate_errors(place):
            last = self._stores.get(name)
            if last is not None and not last.closed:
                raise StoreError(
                    "E6002", f"{place} is already open in this process", fields={"pid": os.getpid()}
                )
            with self._connections.connection() as db, db.transaction():
                schema = self._register(db, name)
                self._migrate(db, schema, place)
            self._stores[name] = store = PostgresStore(self._connections, schema, place)
        return store

    def databases(self) -> list[str]:
        with translate_errors(self.place), self._connections.connection() as db:
            names = [name for (name,) in db.execute("SELECT name FROM vedette.databases")]
        return sorted(names, key=listing_order)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        self._connections.close()
        with self._guard_lock:
            if self._lock_connection is not None:
                self._lock_connection.close()
            self._lock_connection = None

    def _ensure_lock(self) -> None:
        """Acquire the engine lock. Raises E6002 with the holder's name if another engine has it."""
        with self._guard_lock:
            if self._lock_connection is not None and _is_alive(self._lock_connection):
                return
            guard = self._connections.connect()
            try:
                _take_lock(guard, self.place)
            except BaseException:
                guard.close()
                raise
            self._lock_connection = guard

    def _set_up(self) -> None:
        assert self._lock_connection is not None
        with self._lock_connection.transaction():
            for statement in _SET_UP:
                self._lock_connection.execute(statement)
            rows = self._lock_connection.execute(
                "SELECT value FROM vedette.home WHERE key = 'format'"
            ).fetchall()
            encoding = self._lock_connection.execute("SHOW server_encoding").fetchall()
        if encoding != [("UTF8",)]:
            text = f"{self.place} stores text as {encoding[0][0]}: create the database with ENCODING 'UTF8'"
            raise StoreError("E6003", text, fields={"place": self.place})
        if rows != [(str(FORMAT_VERSION),)]:
            text = f"{self.place} has format {rows[0][0]}, this Vedette reads {FORMAT_VERSION}: use a newer Vedette"
            raise StoreError("E6004", text, fields={"place": self.place})

    def _register(self, db: Connection, name: str) -> str:
        row = db.execute("SELECT schema FROM vedette.databases WHERE name = %s", (name,)).fetchone()
        if row is not None:
            return str(row[0])
        schema = schema_name(name)
        db.execute("INSERT INTO vedette.databases (name, schema) VALUES (%s, %s)", (name, schema))
        db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        return schema

    def _migrate(self, db: Connection, schema: str, place: str) -> None:
        name = sql.Identifier(schema)
        version = _version(db, schema)
        steps = pending_migrations(version, self._migrations, place)
        for step in steps:
            for statement in step.statements:
                db.execute(sql.SQL(statement).format(schema=name))
        facts = {**initial_meta(self._clock), LAST_BATCH_KEY: "0.0"} if version == 0 else {}
        if steps:
            facts[VERSION_KEY] = str(steps[-1].version)
        put = sql.SQL(
            "INSERT INTO {}.meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        for fact in facts.items():
            db.execute(put.format(name), fact)


def schema_name(name: str) -> str:
    """Schema name of a database: readable, within PostgreSQL's 63 bytes, and without psycopg's `%`."""
    schema = f"vedette_{name}"
    if len(schema.encode()) <= MAX_IDENTIFIER_BYTES and "%" not in schema:
        return schema
    short = schema.replace("%", "_").encode()[:42].decode(errors="ignore")
    return f"{short}~{hashlib.sha256(name.encode()).hexdigest()[:20]}"


def _version(db: Connection, schema: str) -> int:
    """Format version of a database's schema; 0 if its tables do not exist yet."""
    exists = db.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{_quoted(schema)}.meta",)).fetchone()
    if exists != (True,):
        return 0
    statement = sql.SQL("SELECT value FROM {}.meta WHERE key = 'store.version'").format(
        sql.Identifier(schema)
    )
    row = db.execute(statement).fetchone()
    return int(row[0]) if row else 0


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_alive(db: Connection) -> bool:
    try:
        db.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


def _take_lock(db: Connection, place: str) -> None:
    """The server may need a moment to notice that a killed engine is gone."""
    for pause in (*LOCK_PAUSES_SECONDS, None):
        if db.execute("SELECT pg_try_advisory_lock(%s, %s)", ADVISORY_LOCK).fetchone() == (True,):
            return
        if pause is not None:
            time.sleep(pause)
    raise _in_use(place, db)


def _in_use(place: str, db: Connection) -> StoreError:
    row = db.execute(_HOLDER, ADVISORY_LOCK).fetchone()
    holder = str(row[0]) if row else ""
    found = re.search(r"pid (\d+)", holder)
    words = f" ({holder})" if holder else ""
    text = f"{place} is in use by another engine{words}: stop it, or choose another database"
    return StoreError("E6002", text, fields={"place": place, "pid": int(found[1]) if found else None})
