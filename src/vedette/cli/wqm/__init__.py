"""The program `wqm`: folder watches, their queue, and search (docs/reference/wqm.md)."""

from __future__ import annotations

import sys

from vedette.cli.program import create_app
from vedette.cli.wqm.admin import admin_app
from vedette.cli.wqm.daemon import daemon
from vedette.cli.wqm.queue import queue_app
from vedette.cli.wqm.search import search
from vedette.cli.wqm.watch import watch_app

__all__ = ["app", "main"]

app = create_app(
    "wqm",
    help="Watch folders, manage their queue, and search their text.",
    epilog='Start with `wqm watch add FOLDER --collection NAME`, `wqm watch sync`, `wqm search "…" --collection NAME`.',
)
app.add_typer(watch_app, name="watch")
app.add_typer(queue_app, name="queue")
app.add_typer(admin_app, name="admin")
app.command()(search)
app.command()(daemon)


def main() -> None:
    """Entry point of the console script `wqm`."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app(prog_name="wqm")
