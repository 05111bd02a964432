"""Markdown: each heading starts a section; its title is the path of headings."""

from __future__ import annotations

import re

from vedette.search.document import Document, Section, truncate
from vedette.search.extraction.text import lines_of

__all__ = ["extract_markdown"]

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t](.+)")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")


def extract_markdown(path: str, text: str) -> Document:
    del path
    lines = lines_of(text)
    parts: list[Section] = []
    above: list[tuple[int, str]] = []
    fence: str | None = None
    for index, line in enumerate(lines):
        marker = _FENCE.match(line)
        if marker is not None:
            if fence is None:
                fence = marker[1]
            elif marker[1].startswith(fence):
                fence = None
            continue
        found = None if fence is not None else _heading(lines, index)
        if found is not None:
            level, title = found
            above = [*(each for each in above if each[0] < level), (level, truncate(title))]
            parts.append(Section(start=index, title=" > ".join(words for _, words in above)))
    return Document.from_lines(lines, parts)


def _heading(lines: list[str], index: int) -> tuple[int, str] | None:
    marked = _HEADING.fullmatch(lines[index])
    if marked is not None:
        title = marked[2].strip(" \t")
        title = title.rstrip("#").rstrip(" \t") or title
        return (len(marked[1]), title) if title else None
    line = lines[index].strip()
    under = _UNDERLINE.fullmatch(lines[index + 1]) if index + 1 < len(lines) else None
    starts = index == 0 or not lines[index - 1].strip()
    if under is not None and line and starts and not line.startswith(("-", "=", "|", ">", "*")):
        return (1 if under[1].startswith("=") else 2), line
    return None
