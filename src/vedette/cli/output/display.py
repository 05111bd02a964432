"""Output of commands: tables and sentences for people, or one JSON object per line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vedette.change import Event
from vedette.cli.errors import error_text
from vedette.cli.output.tables import ascii_table, format_summary, json_line, result_record, rich_table
from vedette.cli.output.values import escape_controls, format_event
from vedette.engine.context.result import Result
from vedette.errors import VedetteError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Display", "JsonDisplay", "QuietDisplay", "TableDisplay", "console_for", "display_for"]

MAX_TERMINAL_ROWS = 1_000
"""Further rows of a result are not shown on a terminal."""
_UNFOLDED_WIDTH = 100_000
"""Width of output that is not a terminal, so that no line is folded."""
_EVENT_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}
"""Colour by event type; other types are cyan."""


class Display(Protocol):
    """Prints results to standard output; notes, warnings and errors to standard error."""

    def result(self, result: Result, seconds: float | None = None) -> None: ...

    def show_defined(self, names: Sequence[str]) -> None:
        """Show the names that a definition added. No names: everything was defined before."""
        ...

    def event(self, watch: str, event: Event) -> None:
        """Show an event of the watch with this name or id."""
        ...

    def show_table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None: ...

    def note(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def error(self, error: VedetteError, place: str = "") -> None: ...

    def failure(self, text: Text | str) -> None: ...


def display_for(*, json: bool) -> Display:
    return JsonDisplay() if json else TableDisplay()


def console_for(*, error: bool = False) -> Console:
    """Create a console. Colours are used on a terminal only; rich honours NO_COLOR."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _UNFOLDED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


class _StderrDisplay:
    """Notes, warnings and errors on standard error, for all displays."""

    def __init__(self) -> None:
        self.err = console_for(error=True)

    def note(self, text: str) -> None:
        self.err.print(escape_controls(text), style="dim", soft_wrap=True)

    def warning(self, text: str) -> None:
        self.err.print(f"warning: {escape_controls(text)}", style="yellow")

    def error(self, error: VedetteError, place: str = "") -> None:
        self.err.print(error_text(error, place), soft_wrap=True)

    def failure(self, text: Text | str) -> None:
        self.err.print(text, style="" if not isinstance(text, str) else "bold red", soft_wrap=True)


class TableDisplay(_StderrDisplay):
    def __init__(self) -> None:
        super().__init__()
        self.out = console_for()

    def result(self, result: Result, seconds: float | None = None) -> None:
        if result.columns:
            self.show_table(result.columns, result.rows)
        for text in result.warnings:
            self.warning(text)
        self.out.print(format_summary(result, seconds), style="green" if not result.columns else "dim")

    def show_defined(self, names: Sequence[str]) -> None:
        if names:
            self.out.print(f"defined {escape_controls(', '.join(names))}", style="green", soft_wrap=True)
        else:
            self.out.print("nothing new: everything was defined before", style="dim")

    def event(self, watch: str, event: Event) -> None:
        style = _EVENT_STYLES.get(event.type, "cyan")
        for line in format_event(watch, event):
            self.out.print(line, style=style, soft_wrap=True)

    def show_table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if not self.out.is_terminal:
            print("\n".join(ascii_table(columns, rows)), flush=True)
            return
        self.out.print(rich_table(columns, rows[:MAX_TERMINAL_ROWS]))
        if len(rows) > MAX_TERMINAL_ROWS:
            self.note(
                f"… and {len(rows) - MAX_TERMINAL_ROWS:,} more rows; add LIMIT, or redirect the output to a file."
            )


class JsonDisplay(_StderrDisplay):
    """Prints one JSON object per line. Warnings are part of the result; the elapsed time is `seconds`."""

    def result(self, result: Result, seconds: float | None = None) -> None:
        record = result_record(result)
        self._print(record if seconds is None else {**record, "seconds": round(seconds, 6)})

    def show_defined(self, names: Sequence[str]) -> None:
        self._print({"defined": names})

    def event(self, watch: str, event: Event) -> None:
        self._print({"watch": watch, **event.to_dict()})

    def show_table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._print({"columns": columns, "rows": rows})

    def _print(self, record: Any) -> None:
        print(json_line(record), flush=True)


class QuietDisplay(_StderrDisplay):
    """Prints warnings and errors only."""

    def result(self, result: Result, seconds: float | None = None) -> None:
        del seconds  # results are not shown
        for text in result.warnings:
            self.warning(text)

    def show_defined(self, names: Sequence[str]) -> None:
        pass

    def event(self, watch: str, event: Event) -> None:
        pass

    def show_table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        pass
