"""Results as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from vedette.cli.value_text import value_text, visible
from vedette.engine.result import Result

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["result_table", "summary", "table"]


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, drawn: bool) -> Table:
    """`drawn` has lines of its own for a terminal; without, it is plain text that other programs can read."""
    from rich import box
    from rich.table import Table

    rows = list(rows)
    made = Table(box=box.ROUNDED if drawn else box.ASCII2, header_style="bold")
    for index, name in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[index]) for row in rows)
        made.add_column(visible(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def result_table(result: Result, *, drawn: bool) -> Table:
    return table(result.columns, result.rows, drawn=drawn)


def summary(result: Result, seconds: float | None = None) -> str:
    """`2 rows, 1 created (3.1 ms)`; a statement that has nothing to tell is `ok`."""
    words = [_counted(len(result.rows), "row")] if result.columns else []
    for name in ("created", "modified", "deleted", "linked", "unlinked"):
        count = getattr(result, name)
        words += [f"{count:,} {name}"] if count else []
    if result.handle is not None:
        words.append(f"handle {visible(result.handle)}")
    line = ", ".join(words) or "ok"
    return line if seconds is None else f"{line} ({_span(seconds)})"


def _cell(value: Any) -> Text:
    from rich.text import Text

    return Text(value_text(value), style="dim italic" if value is None else "")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
