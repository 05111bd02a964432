"""`vedette watch`: print the events of a watch."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, ActorOption, DatabaseOption, DataOption, read_text

if TYPE_CHECKING:
    from vedette.change import Event
    from vedette.cli.output.display import Display
    from vedette.cli.vedette.watch_printer import WatchPrinter
    from vedette.clock import Clock
    from vedette.engine.session.session import Session
    from vedette.engine.session.watch_handle import WatchHandle
    from vedette.language.parser.source_file import SourcePart

__all__ = ["watch"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def watch(
    context: typer.Context,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="WATCH|NAME", help="A WATCH statement, or the name or handle of a durable watch."
        ),
    ],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = "default",
    actor: ActorOption = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="Value of $NAME; may be repeated."),
    ] = None,
    initial: Annotated[
        bool,
        typer.Option("--initial/--no-initial", help="Show existing matches first, or only later events."),
    ] = True,
    scripts: Annotated[
        list[str] | None,
        typer.Option(
            "--exec", metavar="FILE", help="Script to run after the watch is created; - is standard input."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="Exit after N events.")
    ] = None,
    ack: Annotated[
        bool,
        typer.Option(
            "--ack",
            help="Acknowledge each delivery of `mode: consume` after printing it, which deletes the element.",
        ),
    ] = False,
    json: Annotated[
        bool | None,
        typer.Option("--json/--pretty", help="Print JSON, one object per line, or readable lines."),
    ] = None,
) -> None:
    """Print the events of a watch until Ctrl-C or SIGTERM.

    On a terminal each event is a readable line; otherwise one JSON object per line. If no server runs, the command
    opens the data directory itself, and no other program can write to it meanwhile. --exec then runs a script beside
    the watch, as the system; declarations at its beginning are defined before the watch is created.

    Deliveries of `mode: consume` return to the queue when the command ends, unless --ack acknowledges them.

    A watch with `delivery: reliable` or ON MATCH DO is durable: it exists after the command has ended, and
    `vedette watch NAME` continues it.

    \b
    Examples:
      vedette watch 'WATCH t: Task RETURN t.title, t.status' --exec tasks.mew
      vedette watch 'WATCH t: Task WHERE t.priority > $low RETURN t' --param low=2 --count 10 | jq .match
      vedette watch 'board = WATCH t: Task [delivery: reliable] RETURN t.title'
      vedette watch board
      vedette watch 'WATCH m: Message [mode: consume, buffer: 1] RETURN m.text' --ack
    """
    if context.args:  # users try `vedette watch … data` after `vedette shell data`
        surplus = " ".join(context.args)
        raise CommandFailed(f"Too many arguments. Name the data directory with --data {surplus}")
    from vedette.cli.data_access import open_database_session, open_directory
    from vedette.cli.output.display import display_for
    from vedette.cli.parameters import read_parameters
    from vedette.cli.vedette.watch_printer import WatchPrinter
    from vedette.processes.signals import StopSignal

    as_json = json if json is not None else not sys.stdout.isatty()
    display = display_for(json=as_json)
    params = read_parameters(param or [])
    work = _read(scripts or [], display)
    with StopSignal() as stop, open_directory(data, display=display) as vedette:
        author = open_database_session(vedette, database, None, display)
        declarations = _leading_declarations(work)
        _run(author, declarations, display, params)
        reader = vedette.database(database).session(actor)
        handle = _open_watch(reader, statement, params)
        printer = WatchPrinter(
            handle,
            _event_printer(as_json, display, vedette.clock),
            display,
            max_events=count,
            initial=initial,
            ack_deliveries=ack,
        )
        display.note(f"watching {handle.name or handle.id}; Ctrl-C stops")
        printer.print_ready()
        _run(author, work[len(declarations) :], display, params, printer)
        printer.follow(stop)
        if handle.lasts and handle.status != "cancelled":
            display.note(f"The watch is durable: `vedette watch {handle.name or handle.id}` continues it.")
        failed = printer.failed
    if failed:
        raise typer.Exit(1)


def _open_watch(session: Session, statement: str, params: dict[str, Any]) -> WatchHandle:
    """Create the watch, or attach to the one with this name."""
    if _NAME.fullmatch(statement.strip()):
        return session.attach(statement.strip())
    from vedette.errors import AnalysisError

    try:
        return session.watch(statement, params)
    except AnalysisError as error:
        if error.code != "E2001" or "::" not in statement:
            raise
        text = f"{error.text}. External collections need a server: start `vedette serve` for this data directory."
        raise CommandFailed(text) from error


def _event_printer(as_json: bool, display: Display, clock: Clock) -> Callable[[Event], None]:
    if not as_json:
        return lambda event: display.event(f"{clock.now().astimezone():%H:%M:%S}", event)
    from vedette.cli.output.tables import json_line

    return lambda event: print(json_line(event.to_dict()), flush=True)


# Scripts of --exec

_Work = list[tuple[str, str, "SourcePart"]]
"""(file name, text of the file, one part of it)"""


def _read(files: list[str], display: Display) -> _Work:
    from vedette.cli.script_runner import report_errors
    from vedette.language.parser.source_file import parse_source_file

    work: _Work = []
    for name in files:
        text = read_text(name)
        with report_errors(display, name, text):
            work += [(name, text, part) for part in parse_source_file(text)]
    return work


def _leading_declarations(work: _Work) -> _Work:
    from vedette.language.parser.source_file import DeclarationPart

    first = next(
        (i for i, (_, _, part) in enumerate(work) if not isinstance(part, DeclarationPart)), len(work)
    )
    return work[:first]


def _run(
    session: Session,
    work: _Work,
    display: Display,
    params: dict[str, Any],
    printer: WatchPrinter | None = None,
) -> None:
    """Run parts of scripts and print the events after each. Results are not printed."""
    from vedette.cli.output.display import QuietDisplay
    from vedette.cli.script_runner import report_errors, run_part

    quiet = QuietDisplay()
    for name, text, part in work:
        with report_errors(display, name, text, part.first_token_offset):
            run_part(session, part, text, quiet, params=params)
        if printer is not None:
            printer.print_ready()
