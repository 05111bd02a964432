"""Results as tables, for a terminal or as plain text, and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vedette.cli.output.values import escape_controls, format_value
from vedette.engine.context.result import Result
from vedette.values import to_json

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Rows", "ascii_table", "format_summary", "json_line", "result_record", "rich_table", "to_json"]

_COUNTS = ("created", "modified", "deleted", "linked", "unlinked")

Rows = Sequence[Sequence[Any]]


def rich_table(columns: Sequence[str], rows: Rows) -> Table:
    """Return a table for a terminal: fitted to its width, with folded text. Slow beyond a few thousand rows."""
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
    """Yield the lines of a plain table, one line per row."""
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
    """Return for each column whether it contains only numbers and is right-aligned."""
    found = []
    for index in range(len(columns)):
        values = [row[index] for row in rows if row[index] is not None]
        found.append(bool(values) and all(type(value) in (int, float) for value in values))
    return found


def format_summary(result: Result, seconds: float | None = None) -> str:
    """Return `2 rows, 1 created (3.1 ms)`, or `ok` for a statement without a result."""
    words = [f"{len(result.rows):,} {'row' if len(result.rows) == 1 else 'rows'}"] if result.columns else []
    for name in _COUNTS:
        count = getattr(result, name)
        words += [f"{count:,} {name}"] if count else []
    if result.handle is not None:
        words.append(f"handle {escape_controls(result.handle)}")
    line = ", ".join(words) or "ok"
    return line if seconds is None else f"{line} ({format_duration(seconds)})"


def format_duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def json_line(record: Any) -> str:
    """Encode the record as one line of JSON.

    Timestamps are ISO-8601 text in UTC with milliseconds and `Z`; durations are milliseconds.
    """
    return json.dumps(to_json(record), ensure_ascii=False, allow_nan=False)


def result_record(result: Result) -> dict[str, Any]:
    """Return the attributes of a result by name."""
    return {
        "columns": result.columns,
        "rows": result.rows,
        **{name: getattr(result, name) for name in _COUNTS},
        "warnings": result.warnings,
        "handle": result.handle,
        "tick": result.tick,
    }
