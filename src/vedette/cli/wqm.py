"""`wqm`: folders that are watched, their queue, and searching what they hold (docs/reference/wqm.md)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vedette.cli.app import KindGroup
from vedette.cli.version import version_text
from vedette.cli.wqm_admin import admin_app
from vedette.cli.wqm_daemon import daemon
from vedette.cli.wqm_queue import queue_app
from vedette.cli.wqm_search import search
from vedette.cli.wqm_watch import watch_app

__all__ = ["app", "main"]

app = typer.Typer(
    name="wqm",
    cls=KindGroup,
    help="Folders that are watched, their health and their queue; and searching what they hold.",
    epilog='Start with `wqm watch add FOLDER --collection NAME`, `wqm watch sync`, `wqm search "…" --collection NAME`.',
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(version_text())
        raise typer.Exit


@app.callback()
def wqm(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.add_typer(watch_app, name="watch")
app.add_typer(queue_app, name="queue")
app.add_typer(admin_app, name="admin")
app.command()(search)
app.command()(daemon)


def main() -> None:
    """What the console script `wqm` calls."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app(prog_name="wqm")
