"""Opening the place where the data is, for the length of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from vedette.cli.options import local_directory
from vedette.cli.output.display import Display
from vedette.cli.served_directory import ServedDirectory
from vedette.engine.data_directory import Vedette, open_vedette
from vedette.engine.session.session import Session
from vedette.processes.audit_log import audit_logging
from vedette.processes.server_file import read_server_file

__all__ = ["open_database_session", "open_directory", "open_session"]


@contextmanager
def open_directory(location: str, *, display: Display, alone: bool = False) -> Iterator[Vedette]:
    """Open the home at `location`, with its audit log; print a note when the data directory is new.

    `alone`: do not go through a running server.
    """
    directory = local_directory(location)
    server = read_server_file(directory) if directory is not None and not alone else None
    if server is not None and directory is not None:
        with ServedDirectory(directory, server) as served:
            yield cast("Vedette", served)  # the part of a home that commands use
        return
    is_new = directory is not None and not (directory / "format").exists()
    with open_vedette(location) as home:
        if is_new and not alone:  # a server logs its data directory
            display.note(f"{location} is a new data directory")
        with audit_logging(
            directory,
            process="engine" if alone else "command",
            max_bytes=home.settings.audit_log_bytes,
            max_files=home.settings.audit_log_files,
        ):
            yield home


@contextmanager
def open_session(
    location: str, database: str, actor: str | None = None, *, display: Display
) -> Iterator[Session]:
    with (
        open_directory(location, display=display) as home,
        open_database_session(home, database, actor, display) as session,
    ):
        yield session


def open_database_session(home: Vedette, database: str, actor: str | None, display: Display) -> Session:
    """A session with a database of the home; says so when it makes a new one."""
    if database not in home.databases():
        display.note(f"'{database}' is a new database")
    return home.database(database).session(actor)
