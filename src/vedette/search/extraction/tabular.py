"""JSON and CSV: data as lines that can be searched."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import PurePosixPath

from vedette.errors import IngestError
from vedette.search.document import Document, Section, truncate
from vedette.search.extraction.text import lines_of

__all__ = ["extract_csv", "extract_json"]

LONG_LINE = 500
"""JSON with a longer line is machine-written and is reformatted."""
MAX_REFORMAT_DEPTH = 20
"""JSON that nests deeper is not reformatted: indentation would multiply its size."""
COLUMN_CHARACTERS = 40
"""Maximum characters of a column name, which is repeated in every row."""


def extract_json(path: str, text: str) -> Document:
    """The file's own lines, with a section per top-level key; a one-line file is reformatted."""
    lines = lines_of(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IngestError(
            "E4512", f"{path} is no JSON: {error}", fields={"path": path, "reason": str(error)}
        ) from error
    if any(len(line) > LONG_LINE for line in lines) and not _is_deeper_than(value, MAX_REFORMAT_DEPTH):
        text = json.dumps(value, indent=1, ensure_ascii=False)
        # A lone surrogate, which JSON can encode, is not text.
        laid_out = text.encode("utf-8", "replace").decode().split("\n")
        return Document(
            lines=tuple(laid_out),
            positions=(1,) * len(laid_out),
            sections=tuple(_top_level_sections(laid_out)),
        )
    return Document.from_lines(lines, _top_level_sections(lines))


def _is_deeper_than(value: object, levels: int) -> bool:
    """Level by level instead of recursively, because the file may nest arbitrarily deep."""
    level = [value]
    for _ in range(levels):
        level = [
            below
            for each in level
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, dict | list) for each in level)


def _top_level_sections(lines: list[str]) -> list[Section]:
    """Starts of the entries of the outermost object or list: the smallest indentation below the first line."""
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
    """Each row as `column: value, …`; its position is the line on which it begins."""
    delimiter = "\t" if PurePosixPath(path).suffix.lower() == ".tsv" else _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines: list[str] = []
    places: list[int] = []
    header: list[str] = []
    began = 1
    try:
        for row in reader:
            if not header:
                header = [truncate(name, COLUMN_CHARACTERS) for name in row]
                line = ", ".join(row)
            else:
                line = ", ".join(_named(header, row))
            lines.append(" ".join(line.split()))
            places.append(began)
            began = reader.line_num + 1
    except csv.Error as error:
        raise IngestError(
            "E4512", f"{path} is no table: {error} (line {reader.line_num})", fields={"path": path}
        ) from error
    return Document(lines=tuple(lines), positions=tuple(places))


def _named(header: list[str], row: list[str]) -> Iterator[str]:
    for index, value in enumerate(row):
        if value.strip():
            name = header[index] if index < len(header) else f"column {index + 1}"
            yield f"{name}: {value}"


def _delimiter(text: str) -> str:
    """The most frequent candidate in the first line; a comma if there is none."""
    first = text.partition("\n")[0]
    return max(",;\t|", key=first.count)
