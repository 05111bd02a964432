"""The command lines `vedette` and `wqm`: they parse arguments and print (docs/reference/cli.md and wqm.md)."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script `vedette`."""
    if sys.argv[1:] == ["--version"]:  # answered before the commands are loaded
        from vedette.cli.version import version_text

        print(version_text())
        return
    from vedette.cli.vedette import app

    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app(prog_name="vedette")
