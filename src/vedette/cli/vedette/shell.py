"""`vedette shell`: talk to a database."""

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
            help="The data directory; also postgresql://… or :memory:, which keeps nothing.",
        ),
    ] = DEFAULT_DATA,
    database: DatabaseOption = "default",
    actor: ActorOption = None,
    json: JsonOption = False,
) -> None:
    """Talk to a database: type statements, read tables.

    A line that is a whole statement runs at once; one that is not goes on below, until `;` or an empty line.
    `.help` shows what else there is; Ctrl-C drops what is typed, Ctrl-D leaves. From a pipe, statements end
    with `;`, an empty line or the end, and the first error ends the shell with exit code 1.

    \b
    Examples:
      vedette shell
      vedette shell :memory:
      vedette shell /var/lib/vedette --database team-b
      echo 'MATCH t: Task RETURN t;' | vedette shell data --json
    """
    from vedette.cli.data_access import open_directory
    from vedette.cli.output.display import display_for
    from vedette.cli.shell.piped import run_piped
    from vedette.cli.shell.session import ShellSession

    display = display_for(json=json)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    with (
        open_directory(data, display=display) as home,
        ShellSession(home, display, database=database, actor=actor, timed=interactive) as conversation,
    ):
        if interactive:
            from vedette.cli.shell.terminal import run_interactive

            run_interactive(conversation)
        elif not run_piped(conversation, sys.stdin):
            raise typer.Exit(1)
