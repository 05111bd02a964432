"""The result of extraction: lines of text, the source position of each, and the starts of sections."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_TITLE_CHARACTERS", "Document", "Section", "SourceSpan", "truncate"]

MAX_TITLE_CHARACTERS = 120
"""Maximum characters of a heading or name. It is repeated in every section below, so a long one would multiply."""


def truncate(name: str, most: int = MAX_TITLE_CHARACTERS) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, a function, a page: a good start of a chunk."""

    start: int
    """Index of its first line."""
    title: str
    """`Install > Linux`, `class Store.append`, `page 3`; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    lines: tuple[str, ...]
    positions: tuple[int, ...]
    """For each line, its line number in the file (from 1), or its page."""
    sections: tuple[Section, ...] = ()
    """Ordered by `start`; lines before the first section belong to none."""
    position_unit: str = "line"
    """What `positions` count: `line` or `page`."""

    @staticmethod
    def from_lines(lines: list[str], parts: list[Section]) -> Document:
        """A document whose lines are those of the file."""
        return Document(lines=tuple(lines), positions=tuple(range(1, len(lines) + 1)), sections=tuple(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpan:
    """Source of a chunk: lines or pages, both ends included."""

    start: int
    end: int
    unit: str
