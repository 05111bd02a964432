"""What the `wqm` commands work on, opened for the length of a command; and how they show it."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import local_directory

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.handshake.tables import HandshakeTables
    from vedette.handshake.tables.rows import WatchRow
    from vedette.search.file_queue.tasks import QueueAdmin
    from vedette.search.folders.daemon_api import DaemonClient
    from vedette.search.vectors.store import VectorStore
    from vedette.settings import Settings

__all__ = [
    "ForceOption",
    "FormatOption",
    "OutputFormat",
    "WatchArgument",
    "clock_of",
    "confirm",
    "daemon_link",
    "daemon_socket",
    "find_watch",
    "open_queue",
    "open_tables",
    "open_vectors",
    "print_records",
    "require_directory",
    "running_daemon",
    "settings_at",
    "vectors_at",
]

DAEMON_START_SECONDS = 30.0
"""How long a command waits for the folder daemon that a running server starts."""
DAEMON_POLL_SECONDS = 0.1


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


FormatOption: TypeAlias = Annotated[
    OutputFormat, typer.Option("--format", "-f", help="table for people, json for programs.")
]
ForceOption: TypeAlias = Annotated[bool, typer.Option("--force", help="Do not ask.")]
WatchArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="WATCH", help="The id or the path of a watch.")
]


def require_directory(data: str, *, make: bool = False) -> Path:
    """The data directory; the tables of folders need one. Without `make` it has to be there already."""
    directory = local_directory(data)
    if directory is None:
        raise CommandFailed(
            f"{data} is no folder. Watches of folders live in a data directory: name one with --data."
        )
    if not make and not directory.is_dir():
        raise CommandFailed(
            f"There is no data directory {directory}. --data names another; `wqm watch add FOLDER --collection NAME` "
            "makes one."
        )
    return directory


def settings_at(directory: Path) -> Settings:
    from vedette.settings import load_settings

    return load_settings(directory, os.environ)


def clock_of() -> Clock:
    from vedette.clock import SystemClock

    return SystemClock()


@contextmanager
def open_tables(data: str, *, make: bool = False) -> Iterator[HandshakeTables]:
    """The handshake's tables; a daemon that runs sees what is written at once."""
    from vedette.handshake.tables.settings import HandshakeSettings

    directory = require_directory(data, make=make)
    with HandshakeSettings.load(directory).open(directory, clock_of()) as tables:
        yield tables


@contextmanager
def open_vectors(directory: Path) -> Iterator[VectorStore]:
    from vedette.search.vectors.qdrant import QdrantStore

    store = QdrantStore(vectors_at(directory))
    try:
        yield store
    finally:
        store.close()


def vectors_at(directory: Path) -> str | Path:
    """Where its vectors are: a server's URL or a folder."""
    return settings_at(directory).qdrant_url or directory / "vectors"


def daemon_socket(directory: Path) -> Path:
    """Where the daemon of a data directory answers."""
    from vedette.search.folders.daemon_api import SOCKET_NAME
    from vedette.transport.unix_socket import socket_path

    return socket_path(directory, SOCKET_NAME)


def daemon_link(directory: Path) -> DaemonClient:
    """A way to ask the daemon that holds the vectors, should one run."""
    from vedette.search.folders.daemon_api import DaemonClient

    return DaemonClient(daemon_socket(directory))


def running_daemon(directory: Path) -> DaemonClient | None:
    """Return the link to the folder daemon, or None if this process may open the vectors itself.

    A running server starts the daemon when the first folder is watched, which takes seconds. A command that opened the
    vectors meanwhile would lock them against the daemon, so it waits for the daemon.
    """
    link, clock = daemon_link(directory), clock_of()
    deadline = clock.monotonic() + DAEMON_START_SECONDS
    while not link.is_running():
        if clock.monotonic() >= deadline or not _server_starts_daemon(directory):
            return None
        Event().wait(DAEMON_POLL_SECONDS)
    return link


def _server_starts_daemon(directory: Path) -> bool:
    """True if a server runs on the directory, a folder is watched there, and the daemon's packages are installed."""
    from vedette.extras import missing_packages
    from vedette.handshake.config import WatchType
    from vedette.handshake.tables.handshake_db import FILE_NAME
    from vedette.processes.server_file import read_server_file

    if (
        read_server_file(directory) is None
        or not (directory / FILE_NAME).is_file()
        or missing_packages("files")
    ):
        return False
    with open_tables(str(directory)) as tables:
        return any(row.config.watch_type is not WatchType.SOURCE for row in tables.watches())


def find_watch(tables: HandshakeTables, named: str) -> WatchRow:
    """By its id or its path; the path may be relative, as the shell completes it."""
    from vedette.errors import FolderError
    from vedette.handshake.validation import is_utf8

    if not is_utf8(named):
        raise CommandFailed(f"No watch is called {named!r}: names are UTF-8. `wqm watch list` shows all.")
    try:
        return tables.find_watch(named)
    except FolderError:
        path = str(Path(named).expanduser().resolve())
        if path == named:
            raise
        try:
            return tables.find_watch(path)
        except FolderError as error:
            if "several" in error.text:
                raise
        raise


def open_queue(directory: Path) -> QueueAdmin:
    """The queue, whoever owns it: a running daemon answers for it, and without one it is opened for the moment."""
    from vedette.search.file_queue.client import FileQueueClient

    return FileQueueClient(directory, clock_of())


def confirm(question: str, *, force: bool) -> None:
    """Ask, unless told not to. A no ends the command."""
    if not force and not typer.confirm(question):
        raise typer.Exit(1)


def print_records(
    records: Sequence[dict[str, Any]], columns: Sequence[str], format: OutputFormat, *, empty: str
) -> None:
    """Records as a table of these columns, or all of them as a JSON list."""
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.output.json_output import to_json

    if format is OutputFormat.JSON:
        print(json_module.dumps(to_json(list(records)), indent=2, ensure_ascii=False))
    elif records:
        TableDisplay().show_table(columns, [[record[name] for name in columns] for record in records])
    else:
        TableDisplay().note(empty)
