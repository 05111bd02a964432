"""The command lines `vedette` and `wqm`: they parse arguments and print (docs/reference/cli.md and wqm.md)."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

__all__ = ["main", "version_text"]


def main() -> None:
    """Entry point of the console script `vedette`."""
    if sys.argv[1:] == ["--version"]:  # answered before the commands are loaded
        print(version_text())
        return
    from vedette.cli.vedette import app

    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app(prog_name="vedette")


def version_text() -> str:
    """Return the name and version of the installed package, such as `vedette 0.1.0`."""
    try:
        return f"vedette {version('vedette')}"
    except PackageNotFoundError:
        return "vedette, not installed (run from its source)"
