"""Plain text and Markdown: the lines of the file.

A section of plain text starts after an empty line. A section of Markdown starts at a heading; its title is the path of
headings, for example `Install > Linux`.
"""

from __future__ import annotations

import re

from vedette.search.document import Document, Section, split_lines, truncate

__all__ = ["extract_markdown", "extract_plain"]

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t](.+)")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")


def extract_plain(path: str, text: str) -> Document:
    del path
    lines = split_lines(text)
    starts = [
        index
        for index, line in enumerate(lines)
        if line.strip() and index > 0 and not lines[index - 1].strip()
    ]
    return Document.from_lines(lines, [Section(start=start, title="") for start in starts])


def extract_markdown(path: str, text: str) -> Document:
    """Headings inside fenced code blocks do not start a section."""
    del path
    lines = split_lines(text)
    sections: list[Section] = []
    heading_stack: list[tuple[int, str]] = []
    open_fence: str | None = None
    for index, line in enumerate(lines):
        marker = _FENCE.match(line)
        if marker is not None:
            if open_fence is None:
                open_fence = marker[1]
            elif marker[1].startswith(open_fence):
                open_fence = None
            continue
        heading = None if open_fence is not None else _heading(lines, index)
        if heading is not None:
            level, title = heading
            heading_stack = [
                *(heading for heading in heading_stack if heading[0] < level),
                (level, truncate(title)),
            ]
            path_of_titles = " > ".join(title for _, title in heading_stack)
            sections.append(Section(start=index, title=path_of_titles))
    return Document.from_lines(lines, sections)


def _heading(lines: list[str], index: int) -> tuple[int, str] | None:
    """Return level and title if a heading is on this line: `# Title`, or a title with an underline below it."""
    match = _HEADING.fullmatch(lines[index])
    if match is not None:
        title = match[2].strip(" \t")
        title = title.rstrip("#").rstrip(" \t") or title
        return (len(match[1]), title) if title else None
    line = lines[index].strip()
    underline = _UNDERLINE.fullmatch(lines[index + 1]) if index + 1 < len(lines) else None
    follows_blank = index == 0 or not lines[index - 1].strip()
    if underline is not None and line and follows_blank and not line.startswith(("-", "=", "|", ">", "*")):
        return (1 if underline[1].startswith("=") else 2), line
    return None
