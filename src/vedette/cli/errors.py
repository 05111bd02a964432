"""Error output of commands: what went wrong, where, and what to do, without a traceback."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vedette.cli.output.values import escape_controls
from vedette.errors import VedetteError

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["CommandFailed", "error_text", "format_internal_error", "should_print_traceback"]

TRACEBACK_VARIABLE = "VEDETTE_TRACEBACK"

ADVICE: Mapping[str, str] = {
    "E6002": "One engine at a time can open a data directory. Stop the other one, choose "
    "another directory, or connect to the "
    "`vedette serve` that has it open.",
    "E6003": "Choose another directory with --data, or correct its permissions; `vedette doctor` checks them.",
    "E0101": "`vedette config show` lists every setting and where it comes from.",
}
"""What to do next, by error code."""

_POINTER = re.compile(r" *(\^+)")


def should_print_traceback() -> bool:
    return bool(os.environ.get(TRACEBACK_VARIABLE))


class CommandFailed(Exception):
    """A command cannot continue, for instance because a file does not exist. The text says why and what to do."""


def error_text(error: VedetteError, place: str = "") -> Text:
    """Format an error with underlined source. `place` is `file:line:column` if the source is a file."""
    from rich.text import Text

    text = Text()
    if place:
        text.append(f"{escape_controls(place)}: ", style="bold")
    text.append(f"{error.category}: {error.code} {error.name}: ", style="bold red")
    text.append(escape_controls(error.text))
    repeated = f" {error.text} (line" if len(error.diagnostics) == 1 else None
    for diagnostic in error.diagnostics:
        text.append("\n").append_text(_underlined(diagnostic.render(), repeated))
    if error.code in ADVICE:
        text.append(f"\n{ADVICE[error.code]}", style="yellow")
    return text


def _underlined(rendered: str, repeated: str | None) -> Text:
    """Style a source line and its line of `^`. `repeated` is omitted from the output, because it was printed before."""
    from rich.text import Text

    source, _, pointer = rendered.partition("\n")
    if repeated is not None and repeated in pointer:
        pointer = f"{pointer.partition(repeated)[0]} line{pointer.partition(repeated)[2].rstrip(')')}"
    line = Text(escape_controls(source))
    line.stylize("dim", 0, source.find("|") + 1)
    marked = _POINTER.match(pointer)
    if marked is not None:
        line.stylize("bold red", *marked.span(1))
    return line.append("\n").append(escape_controls(pointer), style="red")


def format_internal_error(error: Exception) -> Text:
    """Format an unexpected exception as a defect of Vedette."""
    from rich.text import Text

    text = Text("internal error: ", style="bold red")
    text.append(escape_controls(f"{type(error).__name__}: {error}"))
    advice = (
        f"This is a defect in Vedette. Set {TRACEBACK_VARIABLE}=1 to see the traceback, and please report it."
    )
    return text.append(f"\n{advice}", style="yellow")
