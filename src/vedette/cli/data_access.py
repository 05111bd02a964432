"""Open a data directory for a command, directly or through its running server."""

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
def open_directory(location: str, *, display: Display, direct: bool = False) -> Iterator[Vedette]:
    """Open the data at `location` with its audit log. Prints a note if the data directory is new.

    If a server runs on the directory, commands go through it, unless `direct` is set.
    """
    directory = local_directory(location)
    server = read_server_file(directory) if directory is not None and not direct else None
    if server is not None and directory is not None:
        with ServedDirectory(directory, server) as served:
            yield cast("Vedette", served)  # implements what commands use of Vedette
        return
    is_new = directory is not None and not (directory / "format").exists()
    with open_vedette(location) as vedette:
        if is_new and not direct:  # a server logs its data directory
            display.note(f"{location} is a new data directory")
        with audit_logging(
            directory,
            process="engine" if direct else "command",
            max_bytes=vedette.settings.audit_log_bytes,
            max_files=vedette.settings.audit_log_files,
        ):
            yield vedette


@contextmanager
def open_session(
    location: str, database: str, actor: str | None = None, *, display: Display
) -> Iterator[Session]:
    with (
        open_directory(location, display=display) as vedette,
        open_database_session(vedette, database, actor, display) as session,
    ):
        yield session


def open_database_session(vedette: Vedette, database: str, actor: str | None, display: Display) -> Session:
    """Open a session of a database. Prints a note if the database is new."""
    if database not in vedette.databases():
        display.note(f"'{database}' is a new database")
    return vedette.database(database).session(actor)
