"""Options and arguments that several commands share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from vedette.cli.errors import CommandFailed
from vedette.processes.logging_setup import LogFormat, LogLevel

__all__ = [
    "DEFAULT_DATA",
    "ActorOption",
    "DataOption",
    "DatabaseOption",
    "JsonOption",
    "LogFormatOption",
    "LogLevelOption",
    "journal_address",
    "local_directory",
    "read_text",
]

DEFAULT_DATA = "data"
_MEMORY = ":memory:"

DataOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="VEDETTE_DATA",
        help="Data directory; also postgresql://… or :memory:, which stores nothing.",
    ),
]
DatabaseOption: TypeAlias = Annotated[
    str, typer.Option("--database", metavar="NAME", help="Database name; created on first use.")
]
ActorOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--actor", metavar="ID", help="Act as this node, restricted by policies; by default as the system."
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

LogLevelOption: TypeAlias = Annotated[
    LogLevel,
    typer.Option("--log-level", envvar="VEDETTE_LOG_LEVEL", help="Lowest level that is logged."),
]
LogFormatOption: TypeAlias = Annotated[
    LogFormat,
    typer.Option("--log-format", envvar="VEDETTE_LOG_FORMAT", help="Log lines as text, or as JSON objects."),
]


def local_directory(location: str) -> Path | None:
    """Return the path of a data directory, or None for PostgreSQL and memory."""
    return None if location == _MEMORY or "://" in location else Path(os.fspath(location))


def journal_address(directory: Path) -> str:
    """Return the address of a directory's journal: the setting `pipeline_store`, or the directory itself."""
    from vedette.settings import load_settings

    directory.mkdir(parents=True, exist_ok=True)
    return load_settings(directory, os.environ).pipeline_store or str(directory)


def read_text(name: str) -> str:
    """Read a text file; `-` is standard input."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandFailed(f"{name} cannot be read: {error.strerror or error}. Check the path.") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CommandFailed(f"{name}:{line}: this is not UTF-8 text. Save the file as UTF-8.") from error
