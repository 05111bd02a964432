"""A data directory and its databases: what `vedette.open` returns."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from vedette.change import Event
from vedette.clock import Clock, SystemClock
from vedette.engine.database import Database
from vedette.engine.process_memory import collection_policy
from vedette.engine.reactor import Reactor
from vedette.engine.session.async_session import AsyncSession
from vedette.engine.session.session import Session
from vedette.errors import StoreError
from vedette.settings import Settings, load_settings, validated
from vedette.storage.catalog import MEMORY, open_catalog

__all__ = ["Vedette", "open_vedette"]

DEFAULT_DATABASE = "default"
_open_directories: WeakSet[Vedette] = WeakSet()
"""Data directories that this process has open."""


def _mark_all_forked() -> None:
    """In a forked child: the open directories, their locks and their log positions belong to the parent."""
    for directory in list(_open_directories):
        directory.mark_forked()


os.register_at_fork(after_in_child=_mark_all_forked)
logging.getLogger("vedette").addHandler(logging.NullHandler())


class Vedette:
    """An open data directory. `define`, `session` and the other methods apply to its default database."""

    def __init__(self, location: str | os.PathLike[str], settings: Settings, clock: Clock) -> None:
        self.location = os.fspath(location)
        self.settings = settings
        self.clock = clock
        self._lock = Lock()
        self._closed = False
        self._databases: dict[str, Database] = {}
        self._store_root = open_catalog(
            location, durability="relaxed" if settings.durability == "relaxed" else "fsync", clock=clock
        )
        try:
            self._default = self._open(DEFAULT_DATABASE)
        except BaseException:
            self._store_root.close()
            raise
        if settings.manage_gc:
            collection_policy.acquire()
        _open_directories.add(self)

    def database(self, name: str) -> Database:
        """Return a database (tenant), created on first use: its own ontology, graph, ticks and log."""
        with self._lock:
            self._check_open()
            known = self._databases.get(name)
            return known if known is not None else self._open(name)

    def mark_forked(self) -> None:
        """Reject all further calls, because this process is a fork of the one that opened the directory."""
        for database in self._databases.values():
            database.is_forked_copy = True

    def databases(self) -> list[str]:
        """The names of the existing databases, "default" first."""
        with self._lock:
            self._check_open()
            return self._store_root.databases()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("E6005", "This data directory is closed; open it again")

    def _open(self, name: str) -> Database:
        store = self._store_root.open(name)
        try:
            database = Database(name, store, self.settings, self.clock, keeps=self.location != MEMORY)
        except BaseException:
            store.close()
            raise
        self._databases[name] = database
        return database

    # --- the default database ---------------------------------------------------------------------------------

    def define(self, ontology: str) -> None:
        """Add declarations to the default database's ontology."""
        self._default.define(ontology)

    def session(self, actor: str | None = None) -> Session:
        """Open a session with the default database.

        None is the system context; for an actor's node id, policies apply.
        """
        return self._default.session(actor)

    def async_session(self, actor: str | None = None) -> AsyncSession:
        """The same for asyncio: `async with db.async_session() as s: await s.execute(…)`."""
        return self._default.async_session(actor)

    def reactor(
        self,
        name: str,
        watch_text: str,
        callback: Callable[[Event], object],
        params: Mapping[str, Any] | None = None,
        /,
        **named: Any,
    ) -> Reactor:
        """Call Python for every event of a watch, durably: the position under `name` survives restarts."""
        return self._default.reactor(name, watch_text, callback, params, **named)

    @property
    def default(self) -> Database:
        return self._default

    # --- closing ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all sessions, flush, and release the store. Closing twice has no effect."""
        # a database that fails to close does not prevent closing the others
        with self._lock, ExitStack() as closing:
            if self._closed:
                return
            self._closed = True
            if self.settings.manage_gc:
                closing.callback(collection_policy.release)
            closing.callback(self._store_root.close)
            for database in self._databases.values():
                closing.callback(database.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_vedette(
    location: str | os.PathLike[str],
    *,
    settings: Settings | None = None,
    clock: Clock | None = None,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Vedette:
    """Open a data directory, `postgresql://…`, or `:memory:`, which stores nothing.

    Without `settings` they are read from the directory's `vedette.toml` and `VEDETTE_*` variables; `options` take
    precedence.
    """
    if settings is None:
        position = os.fspath(location)
        directory = None if position == MEMORY or "://" in position else Path(position)
        settings = load_settings(directory, os.environ if environment is None else environment, **options)
    elif options:
        settings = validated({f.name: getattr(settings, f.name) for f in fields(settings)} | options)
    return Vedette(location, settings, clock or SystemClock())
