"""What the `wqm` commands open, and how they print records."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import local_directory
from vedette.clock import SystemClock

if TYPE_CHECKING:
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
    "confirm",
    "directory_settings",
    "find_watch",
    "open_queue",
    "open_tables",
    "open_vectors",
    "print_record",
    "print_records",
    "require_directory",
    "running_daemon",
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
WatchArgument: TypeAlias = Annotated[str, typer.Argument(metavar="WATCH", help="Id or path of a watch.")]


def require_directory(data: str, *, make: bool = False) -> Path:
    """Return the data directory. It must exist unless `make` is set."""
    directory = local_directory(data)
    if directory is None:
        raise CommandFailed(
            f"{data} is not a directory. Folder watches are stored in a data directory: choose one with --data."
        )
    if not make and not directory.is_dir():
        raise CommandFailed(
            f"The data directory {directory} does not exist. Choose another with --data, or create one with "
            "`wqm watch add FOLDER --collection NAME`."
        )
    return directory


@contextmanager
def open_tables(data: str, *, make: bool = False) -> Iterator[HandshakeTables]:
    """Open the handshake's tables. A running daemon sees changes at once."""
    from vedette.handshake.tables.settings import open_handshake_tables

    with open_handshake_tables(require_directory(data, make=make)) as tables:
        yield tables


def directory_settings(directory: Path) -> Settings:
    from vedette.settings import load_settings

    return load_settings(directory, os.environ)


@contextmanager
def open_vectors(directory: Path) -> Iterator[VectorStore]:
    """Open the vector store in this process. Fails while a daemon has a local store open."""
    from vedette.search.vectors.qdrant import open_qdrant_store

    with closing(open_qdrant_store(directory, directory_settings(directory))) as store:
        yield store


def running_daemon(directory: Path) -> DaemonClient | None:
    """Return a client of the folder daemon, or None if this process may open the vectors itself.

    A running server starts the daemon when the first folder is watched, which takes seconds. A command that opened the
    vectors meanwhile would lock them against the daemon, so it waits for the daemon.
    """
    from vedette.search.folders.daemon_api import connect_daemon

    daemon, clock = connect_daemon(directory), SystemClock()
    deadline = clock.monotonic() + DAEMON_START_SECONDS
    while not daemon.is_running():
        if clock.monotonic() >= deadline or not _server_starts_daemon(directory):
            return None
        Event().wait(DAEMON_POLL_SECONDS)
    return daemon


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
    """Find a watch by id or path. The path may be relative."""
    from vedette.errors import FolderError
    from vedette.handshake.validation import is_utf8

    if not is_utf8(named):
        raise CommandFailed(
            f"No watch has the name {named!r}, which is not UTF-8. `wqm watch list` shows all watches."
        )
    try:
        return tables.find_watch(named)
    except FolderError:
        path = str(Path(named).expanduser().resolve())
        if path == named:
            raise
        try:
            return tables.find_watch(path)
        except FolderError as error:
            if "matches" in error.fields:
                raise
        raise


def open_queue(directory: Path) -> QueueAdmin:
    """Return the file queue. A running daemon answers for it; otherwise it is opened for each call."""
    from vedette.search.file_queue.client import FileQueueClient

    return FileQueueClient(directory, SystemClock())


def confirm(question: str, *, force: bool) -> None:
    """Ask the user, unless `force` is set. A negative answer ends the command."""
    if not force and not typer.confirm(question):
        raise typer.Exit(1)


def print_records(
    records: Sequence[dict[str, Any]], columns: Sequence[str], format: OutputFormat, *, empty: str
) -> None:
    """Print records as a table with these columns, or with all fields as a JSON list."""
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.output.tables import to_json

    if format is OutputFormat.JSON:
        print(json_module.dumps(to_json(list(records)), indent=2, ensure_ascii=False))
    elif records:
        TableDisplay().show_table(columns, [[record[name] for name in columns] for record in records])
    else:
        TableDisplay().note(empty)


def print_record(record: dict[str, Any], format: OutputFormat) -> None:
    """Print one record: a line per field, or a JSON object."""
    from vedette.cli.output.tables import to_json

    if format is OutputFormat.JSON:
        print(json_module.dumps(to_json(record), indent=2, ensure_ascii=False))
        return
    fields = [{"field": name, "value": value} for name, value in record.items()]
    print_records(fields, ["field", "value"], format, empty="")
