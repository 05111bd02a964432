"""A small pool of connections to one PostgreSQL server; broken ones are replaced."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from vedette.errors import StoreError
from vedette.storage.seam import Durability

__all__ = ["Connection", "ConnectionPool", "display_url"]

Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_SECONDS = 10
LOCK_SECONDS = 30
"""Seconds a write waits for another writer of the same database, for example its own lost transaction."""

# The server's default may acknowledge early; durability must not depend on it. Settings for standbys are kept.
_DURABLE = """SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
_RELAXED = "SET synchronous_commit = off"


def display_url(url: str) -> str:
    """Server and database for messages, without user and password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as problem:
        text = f"the address of the PostgreSQL server is invalid: {' '.join(str(problem).split())}"
        raise StoreError("E6003", text) from None
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{parts.get('host') or 'localhost'}{port}/{parts.get('dbname') or ''}"


class ConnectionPool:
    """`lend()` returns a live connection in autocommit mode, and waits while `limit` are in use."""

    def __init__(self, url: str, *, durability: Durability, application: str, limit: int = 8) -> None:
        self._url, self._durability, self._application = url, durability, application
        self._idle: list[Connection] = []
        self._lock = Lock()
        self._free = BoundedSemaphore(limit)
        self._closed = False
        self.before_connect: Callable[[], None] = lambda: None
        """Called before a connection is opened, also after a loss; may refuse by raising."""

    def connect(self) -> Connection:
        """Open a connection owned by the caller, with our settings."""
        db = psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name=self._application,
            client_encoding="utf8",
        )
        db.execute(_DURABLE if self._durability == "fsync" else _RELAXED)
        db.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
        db.execute("SET statement_timeout = 0")
        return db

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection that returns to the pool when the block ends; a broken one is discarded."""
        with self._free:
            db = self._acquire()
            try:
                yield db
            finally:
                self._release(db)

    def close(self) -> None:
        """Close idle connections now, lent ones when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _acquire(self) -> Connection:
        with self._lock:
            if self._closed:
                raise StoreError("E6005", f"{display_url(self._url)} is closed: open it again")
            while self._idle:
                db = self._idle.pop()
                if not _has_unread_input(db):
                    return db
                db.close()
        self.before_connect()
        return self.connect()

    def _release(self, db: Connection) -> None:
        healthy = db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if healthy and not self._closed:
                self._idle.append(db)
                return
        db.close()


def _has_unread_input(db: Connection) -> bool:
    """True if an idle connection has unread data: the server has closed it."""
    poll = select.poll()
    poll.register(db.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))
