"""Results as tables: drawn for a terminal, plain for a file or another program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vedette.cli.output.values import escape_controls, format_value
from vedette.engine.context.result import Result

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Rows", "ascii_table", "format_summary", "rich_table"]

Rows = Sequence[Sequence[Any]]


def rich_table(columns: Sequence[str], rows: Rows) -> Table:
    """For a terminal: fits its width, long texts are folded, nulls are dim. Slow beyond some thousand rows."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold")
    for name, numeric in zip(columns, _numeric(columns, rows), strict=True):
        table.add_column(escape_controls(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(format_value(v), style="dim italic" if v is None else "") for v in row))
    return table


def ascii_table(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Line by line, each row on one of them, however long it gets."""
    from rich.cells import cell_len

    cells = [
        [escape_controls(name) for name in columns],
        *([format_value(value) for value in row] for row in rows),
    ]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    numeric = _numeric(columns, rows)
    rule = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
    for number, row in enumerate(cells):
        padded = []
        for cell, width, on_right in zip(row, widths, numeric, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if on_right else cell + space)
        yield from [rule] * (number < 2)
        yield f"| {' | '.join(padded)} |"
    yield from [rule] * (2 if not rows else 1)


def _numeric(columns: Sequence[str], rows: Rows) -> list[bool]:
    """Which columns hold numbers, and nothing but: they stand on the right."""
    found = []
    for index in range(len(columns)):
        values = [row[index] for row in rows if row[index] is not None]
        found.append(bool(values) and all(type(value) in (int, float) for value in values))
    return found


def format_summary(result: Result, seconds: float | None = None) -> str:
    """`2 rows, 1 created (3.1 ms)`; a statement that has nothing to tell is `ok`."""
    words = [f"{len(result.rows):,} {'row' if len(result.rows) == 1 else 'rows'}"] if result.columns else []
    for name in ("created", "modified", "deleted", "linked", "unlinked"):
        count = getattr(result, name)
        words += [f"{count:,} {name}"] if count else []
    if result.handle is not None:
        words.append(f"handle {escape_controls(result.handle)}")
    line = ", ".join(words) or "ok"
    return line if seconds is None else f"{line} ({format_duration(seconds)})"


def format_duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
