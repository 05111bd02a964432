"""`vedette serve`: keep a data directory open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption

if TYPE_CHECKING:
    from vedette.cli.display import TableDisplay
    from vedette.cli.stopping import StopSignal
    from vedette.engine.home import Vedette

__all__ = ["serve"]


def serve(
    data: DataOption = DEFAULT_DATA,
    demo: Annotated[bool, typer.Option("--demo", help="Fill a database `demo` and let it live.")] = False,
    pace: Annotated[
        float,
        typer.Option("--pace", metavar="SECONDS", min=0.05, help="How often something happens in the demo."),
    ] = 3.0,
) -> None:
    """Keep a data directory open until Ctrl-C or SIGTERM.

    In this release nobody can connect yet: that arrives with the gateway. With --demo there is something to see, a
    project board in a database of its own, `demo`, which is filled once and worked on every few seconds.

    \b
    Examples:
      vedette serve --demo
      vedette serve --data /var/lib/vedette
    """
    from vedette.cli.display import TableDisplay
    from vedette.cli.place import open_place
    from vedette.cli.stopping import StopSignal

    display = TableDisplay()
    with StopSignal() as stop:
        with open_place(data, display=display) as home:
            _introduce(home, display, f"{data} --database demo" if demo else data)
            if demo:
                _show_board(home, display)
                _work(home, display, stop, pace)
            else:
                display.out.print("Waiting. `vedette serve --demo` has something to see. Ctrl-C ends it.")
                stop.wait(None)
        display.out.print(f"Stopped; {data} is closed in good order.")


def _introduce(home: Vedette, display: TableDisplay, shell_arguments: str) -> None:
    databases = ", ".join(home.databases())
    display.out.print(f"Vedette has {home.location} open (databases: {databases}).", soft_wrap=True)
    display.out.print(
        "Network access arrives with the gateway. Until then this process has the directory to itself: to talk to it,\n"
        f"end this (Ctrl-C) and start `vedette shell {shell_arguments}`.",
        style="dim",
        soft_wrap=True,
    )


def _show_board(home: Vedette, display: TableDisplay) -> None:
    from vedette.cli import demo

    database = home.database(demo.DATABASE)
    filled = demo.prepare(database)
    display.out.print(
        f"\nA project board, {'made just now' if filled else 'as it was left'}: the database `demo`.\n"
    )
    with database.session() as session:
        for statement in (demo.OVERVIEW, demo.EXAMPLE):
            display.out.print(f"{statement};", style="bold")
            display.result(session.execute(statement))


def _work(home: Vedette, display: TableDisplay, stop: StopSignal, pace: float) -> None:
    from vedette.cli import demo

    display.out.print("\nThe work goes on; Ctrl-C ends it.")
    with home.database(demo.DATABASE).session() as session:
        while not stop.wait(pace):
            moment = home.clock.now().strftime("%H:%M:%S")
            display.out.print(f"{moment}  {demo.advance(session)}", soft_wrap=True)
