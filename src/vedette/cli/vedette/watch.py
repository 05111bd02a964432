"""`vedette watch`: see what happens, as it happens."""

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
            metavar="WATCH|NAME", help="A WATCH statement; or the name or handle of a watch that lasts."
        ),
    ],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = "default",
    actor: ActorOption = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="The value of $NAME; may be given several times."),
    ] = None,
    initial: Annotated[
        bool, typer.Option("--initial/--no-initial", help="Show what is there already, or only what comes.")
    ] = True,
    scripts: Annotated[
        list[str] | None,
        typer.Option(
            "--exec", metavar="FILE", help="A script to run once the watch exists; - is standard input."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="End after so many events.")
    ] = None,
    ack: Annotated[
        bool,
        typer.Option(
            "--ack", help="Acknowledge what `mode: consume` hands out, once printed: it is deleted."
        ),
    ] = False,
    json: Annotated[
        bool | None,
        typer.Option("--json/--pretty", help="One JSON object per line, or lines to read."),
    ] = None,
) -> None:
    """Print what a watch is told, as it comes, until Ctrl-C or SIGTERM.

    On a terminal each event is a line to read, changes as before → after; elsewhere one JSON object per line.
    The command opens the data directory itself, so that nobody else can write there meanwhile: --exec runs a
    script beside the watch (as the system; declarations at its beginning are defined before the watch is made).

    What a watch with `mode: consume` hands out goes back untried when the command ends; with --ack it is done with.

    A watch with `delivery: reliable` or ON MATCH DO lasts: it is there when the command has ended, and
    `vedette watch NAME` goes on with it.

    \b
    Examples:
      vedette watch 'WATCH t: Task RETURN t.title, t.status' --exec tasks.mew
      vedette watch 'WATCH t: Task WHERE t.priority > $low RETURN t' --param low=2 --count 10 | jq .match
      vedette watch 'board = WATCH t: Task [delivery: reliable] RETURN t.title'
      vedette watch board
      vedette watch 'WATCH m: Message [mode: consume, buffer: 1] RETURN m.text' --ack
    """
    if context.args:  # `vedette shell data` is right, so `vedette watch … data` is tried
        surplus = " ".join(context.args)
        raise CommandFailed(f"One statement is enough: a data directory is named with --data {surplus}")
    from vedette.cli.data_access import open_database_session, open_directory
    from vedette.cli.output.display import display_for
    from vedette.cli.parameters import read_parameters
    from vedette.cli.vedette.watch_printer import WatchPrinter
    from vedette.processes.signals import StopSignal

    as_json = json if json is not None else not sys.stdout.isatty()
    display = display_for(json=as_json)
    params = read_parameters(param or [])
    work = _read(scripts or [], display)
    with StopSignal() as stop, open_directory(data, display=display) as home:
        author = open_database_session(home, database, None, display)
        begin = _leading_declarations(work)
        _run(author, begin, display, params)
        reader = home.database(database).session(actor)
        handle = _hold(reader, statement, params)
        following = WatchPrinter(
            handle,
            _shown(as_json, display, home.clock),
            display,
            max_events=count,
            initial=initial,
            ack_deliveries=ack,
        )
        display.note(f"watching {handle.name or handle.id}; Ctrl-C ends it")
        following.print_ready()
        _run(author, work[len(begin) :], display, params, following)
        following.follow(stop)
        if handle.lasts and handle.status != "cancelled":
            display.note(
                f"{handle.name or handle.id} lasts: `vedette watch {handle.name or handle.id}` goes on"
            )
        failed = following.failed
    if failed:
        raise typer.Exit(1)


def _hold(session: Session, statement: str, params: dict[str, Any]) -> WatchHandle:
    """The new watch, or the one of that name."""
    if _NAME.fullmatch(statement.strip()):
        return session.attach(statement.strip())
    from vedette.errors import AnalysisError

    try:
        return session.watch(statement, params)
    except AnalysisError as error:
        if error.code != "E2001" or "::" not in statement:
            raise
        text = f"{error.text}. External collections are watched through a server: start `vedette serve` here."
        raise CommandFailed(text) from error


def _shown(as_json: bool, display: Display, clock: Clock) -> Callable[[Event], None]:
    if not as_json:
        return lambda event: display.event(f"{clock.now().astimezone():%H:%M:%S}", event)
    from vedette.cli.output.json_output import json_line

    return lambda event: print(json_line(event.to_dict()), flush=True)


# --- what is run beside it ----------------------------------------------------------------------------------------

_Work = list[tuple[str, str, "SourcePart"]]
"""The name of a file, its text, and a part of it."""


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
    following: WatchPrinter | None = None,
) -> None:
    """Run parts of scripts; what they lead to is shown in between, their results are not."""
    from vedette.cli.output.display import QuietDisplay
    from vedette.cli.script_runner import report_errors, run_part

    quiet = QuietDisplay()
    for name, text, part in work:
        with report_errors(display, name, text, part.first_token_offset):
            run_part(session, part, text, quiet, params=params)
        if following is not None:
            following.print_ready()
