"""The start screen of `vedette serve`: addresses to open, and commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from vedette.cli.program import command_path
from vedette.processes.demo import board, files

__all__ = ["ScreenFacts", "screen_lines"]

NOTE_COLUMN = 28
"""Column of the note after an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFacts:
    """What the screen shows of a running server."""

    data: str
    """The data directory or address, as the user gave it."""
    databases: Sequence[str]
    websocket_url: str
    http_url: str
    requires_token: bool
    demo_seconds: float | None = None
    """How often the demo's board changes; None without the demo."""
    demo_folder: str | None = None
    """The demo's watched folder; None if it cannot be searched here."""
    demo_source: bool = False
    """Whether the demo's board is also read by the Spark pipeline."""


def screen_lines(facts: ScreenFacts) -> list[str]:
    """Return the lines of the screen. Lines that begin with two spaces are addresses or commands."""
    lines = [f"Vedette serves {facts.data} (databases: {', '.join(facts.databases)}). Ctrl-C stops it."]
    if facts.demo_seconds is not None:
        lines.append(
            f"The database `{board.DATABASE}` has a board that changes every {facts.demo_seconds:g} s."
        )
    if facts.demo_folder is not None:
        lines.append(f"The files in {facts.demo_folder} become searchable in a few seconds.")
    lines += [
        "",
        "Open:",
        f"  {facts.http_url:<{NOTE_COLUMN}} console for statements and live tables",
        f"  {facts.websocket_url:<{NOTE_COLUMN}} address for clients (vedette.connect)",
        "",
        "Type in a second terminal, in this folder:",
    ]
    lines += [f"  {command}" for command in _commands(facts)]
    if facts.demo_source:
        lines += [
            "The same board through Spark, which starts in about half a minute:",
            f"  {_source_command(facts)}",
        ]
    return lines


def _commands(facts: ScreenFacts) -> list[str]:
    vedette, data = command_path("vedette"), shlex.quote(facts.data)
    if facts.demo_seconds is None:
        return [f"{vedette} shell {data}"]
    token = '-H "Authorization: Bearer $TOKEN" ' if facts.requires_token else ""
    events = f"{facts.http_url}/realtime/sse?database={board.DATABASE}&collection=Task"
    commands = [
        f"{vedette} watch '{board.WATCH}' {_data_options(facts)}",
        f"{vedette} shell {data} --database {board.DATABASE}",
        f"curl -N {token}'{events}'",
    ]
    if facts.demo_folder is not None:
        search = f"{command_path('wqm')} search '{files.QUESTION}' --collection {files.COLLECTION}"
        commands.append(f"{search} --data {data}")
    return commands


def _source_command(facts: ScreenFacts) -> str:
    return f"{command_path('vedette')} watch '{board.SOURCE_WATCH}' {_data_options(facts)}"


def _data_options(facts: ScreenFacts) -> str:
    return f"--data {shlex.quote(facts.data)} --database {board.DATABASE}"
