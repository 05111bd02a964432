"""`vedette shell`: run statements interactively or from a pipe."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, ActorOption, DatabaseOption, JsonOption

__all__ = ["shell"]


def shell(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            envvar="VEDETTE_DATA",
            help="Data directory; also postgresql://… or :memory:, which stores nothing.",
        ),
    ] = DEFAULT_DATA,
    database: DatabaseOption = "default",
    actor: ActorOption = None,
    json: JsonOption = False,
) -> None:
    """Run statements interactively, or from a pipe.

    A line with a complete statement runs at once. An incomplete one continues until `;` or an empty line. `.help` lists
    the commands; Ctrl-C discards the input, Ctrl-D exits. In a pipe, statements end with `;`, an empty line or the end
    of the input, and the first error ends the shell with exit code 1.

    \b
    Examples:
      vedette shell
      vedette shell :memory:
      vedette shell /var/lib/vedette --database team-b
      echo 'MATCH t: Task RETURN t;' | vedette shell data --json
    """
    from vedette.cli.data_access import open_directory
    from vedette.cli.output.display import display_for
    from vedette.cli.shell.input import run_piped
    from vedette.cli.shell.session import ShellSession

    display = display_for(json=json)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    with (
        open_directory(data, display=display) as vedette,
        ShellSession(vedette, display, database=database, actor=actor, show_timing=interactive) as session,
    ):
        if interactive:
            from vedette.cli.shell.terminal import run_interactive

            run_interactive(session)
        elif not run_piped(session, sys.stdin):
            raise typer.Exit(1)
