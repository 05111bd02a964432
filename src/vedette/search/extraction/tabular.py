"""JSON and CSV: data as searchable lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import PurePosixPath

from vedette.errors import IngestError
from vedette.search.document import Document, Section, split_lines, truncate

__all__ = ["extract_csv", "extract_json"]

LONG_LINE_CHARACTERS = 500
"""JSON with a longer line was not written for people, and is reformatted."""
MAX_REFORMAT_DEPTH = 20
"""JSON that is nested deeper is not reformatted, because the indentation would multiply its size."""
MAX_COLUMN_CHARACTERS = 40
"""Limit for a column name, which is repeated in every row."""


def extract_json(path: str, text: str) -> Document:
    """The lines are those of the file, or reformatted ones if a line is long. Each top-level key starts a section.

    The position of a reformatted line is 1.
    """
    lines = split_lines(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IngestError(
            "E4512", f"{path} is not valid JSON: {error}", fields={"path": path, "reason": str(error)}
        ) from error
    if any(len(line) > LONG_LINE_CHARACTERS for line in lines) and not _is_deeper_than(
        value, MAX_REFORMAT_DEPTH
    ):
        text = json.dumps(value, indent=1, ensure_ascii=False)
        # JSON can contain a lone surrogate, which is no valid text.
        reformatted = text.encode("utf-8", "replace").decode().split("\n")
        return Document(
            lines=tuple(reformatted),
            positions=(1,) * len(reformatted),
            sections=tuple(_top_level_sections(reformatted)),
        )
    return Document.from_lines(lines, _top_level_sections(lines))


def _is_deeper_than(value: object, levels: int) -> bool:
    """Works level by level instead of recursively, because the nesting of a file has no limit."""
    level = [value]
    for _ in range(levels):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return any(isinstance(item, dict | list) for item in level)


def _top_level_sections(lines: list[str]) -> list[Section]:
    """Return a section per entry of the outermost object or list: a line with the smallest indentation."""
    inner = [len(line) - len(line.lstrip()) for line in lines[1:-1] if line.strip()]
    margin = min(inner, default=0)
    if margin == 0:
        return []
    return [
        Section(start=index, title=truncate(line.strip().partition(":")[0].strip(' "{[,')))
        for index, line in enumerate(lines)
        if 0 < index < len(lines) - 1
        and len(line) - len(line.lstrip()) == margin
        and line.strip()[0] not in "}]"
    ]


def extract_csv(path: str, text: str) -> Document:
    """Each row becomes a line `column: value, …`; its position is the line on which the row begins."""
    delimiter = "\t" if PurePosixPath(path).suffix.lower() == ".tsv" else _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines: list[str] = []
    positions: list[int] = []
    header: list[str] = []
    first_line = 1
    try:
        for row in reader:
            if not header:
                header = [truncate(name, MAX_COLUMN_CHARACTERS) for name in row]
                line = ", ".join(row)
            else:
                line = ", ".join(_named_values(header, row))
            lines.append(" ".join(line.split()))
            positions.append(first_line)
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise IngestError(
            "E4512", f"{path} is not a valid table: {error} (line {reader.line_num})", fields={"path": path}
        ) from error
    return Document(lines=tuple(lines), positions=tuple(positions))


def _named_values(header: list[str], row: list[str]) -> Iterator[str]:
    for index, value in enumerate(row):
        if value.strip():
            name = header[index] if index < len(header) else f"column {index + 1}"
            yield f"{name}: {value}"


def _delimiter(text: str) -> str:
    """Return the candidate that is most frequent in the first line, or a comma."""
    first = text.partition("\n")[0]
    return max(",;\t|", key=first.count)
