"""How a failed command ends: what went wrong, where, and what to do, in red, without a traceback."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vedette.cli.output.values import escape_controls
from vedette.errors import VedetteError

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["CommandFailed", "error_text", "format_internal_error", "traceback_wanted"]

TRACEBACK_VARIABLE = "VEDETTE_TRACEBACK"

ADVICE: Mapping[str, str] = {
    "E6002": "One engine at a time works on a data directory. End the other one, name another directory, or let "
    "`vedette serve` have it and connect to that.",
    "E6003": "Choose another directory with --data, or mend its permissions; `vedette doctor` looks closer.",
    "E0101": "`vedette config show` lists every setting and where it comes from.",
}
"""By code: what to do next, in the words of the command line."""

_POINTER = re.compile(r" *(\^+)")


def traceback_wanted() -> bool:
    return bool(os.environ.get(TRACEBACK_VARIABLE))


class CommandFailed(Exception):
    """A command cannot go on for a reason of its own, such as a file that is not there. The text is for people."""


def error_text(error: VedetteError, place: str = "") -> Text:
    """The error with its underlined places; `place` is `file:line:column`, when it came from a file."""
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
    """A line of the source and a line of ^: both in red where it is wrong. What was said already is left out."""
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
    """An error that nobody foresaw is a mistake of ours; say so."""
    from rich.text import Text

    text = Text("internal error: ", style="bold red")
    text.append(escape_controls(f"{type(error).__name__}: {error}"))
    advice = f"This is a mistake in Vedette. With {TRACEBACK_VARIABLE}=1 it shows where; please report it."
    return text.append(f"\n{advice}", style="yellow")
