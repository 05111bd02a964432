"""Plain text: the lines of the file. A section starts after an empty line."""

from __future__ import annotations

from vedette.search.document import Document, Section

__all__ = ["extract_plain", "lines_of"]


def lines_of(text: str) -> list[str]:
    """Split lines as editors do: only
    , \r
     and \r end a line.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def extract_plain(path: str, text: str) -> Document:
    del path
    lines = lines_of(text)
    starts = [
        index
        for index, line in enumerate(lines)
        if line.strip() and index > 0 and not lines[index - 1].strip()
    ]
    return Document.from_lines(lines, [Section(start=start, title="") for start in starts])
