"""The command line: `vedette shell`, `run`, `watch`, `define`, `parse`, `serve` … (docs/reference/cli.md)."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """What the console script `vedette` calls."""
    if sys.argv[1:] == ["--version"]:  # before anything is loaded that it does not need
        from vedette.cli.version import version_text

        print(version_text())
        return
    from vedette.cli.vedette import app

    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app(prog_name="vedette")
