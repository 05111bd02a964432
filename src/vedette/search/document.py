"""The result of extraction: the lines of a file's text, the position of each line in the file, and its sections."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_TITLE_CHARACTERS", "Document", "Section", "SourceSpan", "split_lines", "truncate"]

MAX_TITLE_CHARACTERS = 120
"""Limit for a heading or name. The title of a nested section contains the titles above it, so long ones add up."""


def truncate(name: str, limit: int = MAX_TITLE_CHARACTERS) -> str:
    """Shorten a name to `limit` characters; the last one is then an ellipsis."""
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


def split_lines(text: str) -> list[str]:
    """Split as editors do: only a line feed, a carriage return or both together end a line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a document that a chunk should not cross: the text below a heading, a function, a page."""

    start: int
    """Index of its first line in `Document.lines`."""
    title: str
    """For example `Install > Linux`, `def Store.append` or `page 3`. Empty for a paragraph of plain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    lines: tuple[str, ...]
    positions: tuple[int, ...]
    """For each line, its line number in the file or its page, from 1."""
    sections: tuple[Section, ...] = ()
    """Ordered by `start`. Lines before the first section belong to no section."""
    position_unit: str = "line"
    """What `positions` count: `line` or `page`."""

    @staticmethod
    def from_lines(lines: list[str], sections: list[Section]) -> Document:
        """Create a document whose lines are the lines of the file."""
        return Document(
            lines=tuple(lines), positions=tuple(range(1, len(lines) + 1)), sections=tuple(sections)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpan:
    """The lines or pages of a file that a chunk comes from. Both ends are included."""

    start: int
    end: int
    unit: str
    """`line` or `page`."""
