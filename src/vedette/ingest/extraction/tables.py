"""JSON and CSV: data as lines that can be found by the words in them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import PurePosixPath

from vedette.errors import IngestError
from vedette.ingest.document import Document, Part
from vedette.ingest.extraction.plain import lines_of

__all__ = ["extract_csv", "extract_json"]

LONG_LINE = 500
"""Characters. JSON with a longer line was written by a program for a program, and is laid out anew."""


def extract_json(path: str, text: str) -> Document:
    """The file's own lines, a part at each key of the first level; a file in one line is laid out."""
    lines = lines_of(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IngestError(
            "E4512", f"{path} is no JSON: {error}", fields={"path": path, "reason": str(error)}
        ) from error
    if any(len(line) > LONG_LINE for line in lines):
        laid_out = json.dumps(value, indent=1, ensure_ascii=False).split("\n")
        return Document(lines=tuple(laid_out), places=(1,) * len(laid_out), parts=tuple(_keys(laid_out)))
    return Document.of_lines(lines, _keys(lines))


def _keys(lines: list[str]) -> list[Part]:
    """Where the entries of the outermost object or list begin: the smallest indentation below the first line."""
    inner = [len(line) - len(line.lstrip()) for line in lines[1:-1] if line.strip()]
    margin = min(inner, default=0)
    if margin == 0:
        return []
    return [
        Part(start=index, title=line.strip().partition(":")[0].strip(' "{[,'))
        for index, line in enumerate(lines)
        if 0 < index < len(lines) - 1
        and len(line) - len(line.lstrip()) == margin
        and line.strip()[0] not in "}]"
    ]


def extract_csv(path: str, text: str) -> Document:
    """Each row as `column: value, …`; its place is the line that it begins on."""
    delimiter = "\t" if PurePosixPath(path).suffix.lower() == ".tsv" else _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines: list[str] = []
    places: list[int] = []
    header: list[str] = []
    began = 1
    try:
        for row in reader:
            if not header:
                header = row
                line = ", ".join(row)
            else:
                line = ", ".join(f"{name}: {value}" for name, value in _named(header, row) if value.strip())
            lines.append(" ".join(line.split()))
            places.append(began)
            began = reader.line_num + 1
    except csv.Error as error:
        raise IngestError(
            "E4512", f"{path} is no table: {error} (line {reader.line_num})", fields={"path": path}
        ) from error
    return Document(lines=tuple(lines), places=tuple(places))


def _named(header: list[str], row: list[str]) -> list[tuple[str, str]]:
    names = header + [f"column {number}" for number in range(len(header) + 1, len(row) + 1)]
    return list(zip(names, row, strict=False))


def _delimiter(text: str) -> str:
    """Of the first line's candidates the most frequent; a comma when there is none."""
    first = text.partition("\n")[0]
    return max(",;\t|", key=first.count)
