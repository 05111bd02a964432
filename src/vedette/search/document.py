"""What extraction yields and chunking takes: lines of text, where each comes from, and where a new part begins."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_TITLE_CHARACTERS", "Document", "Section", "SourceSpan", "truncate"]

MAX_TITLE_CHARACTERS = 120
"""Of one heading or name. It is repeated with all that is below, so that a long one would be many times its file."""


def truncate(name: str, most: int = MAX_TITLE_CHARACTERS) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, a function, a page: a good place to begin a chunk."""

    start: int
    """Index of its first line."""
    title: str
    """`Install > Linux`, `class Store.append`, `page 3`; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    lines: tuple[str, ...]
    positions: tuple[int, ...]
    """For each line, the line of the file (from 1) it comes from, or the page."""
    sections: tuple[Section, ...] = ()
    """In the order of `start`; what comes before the first belongs to none."""
    position_unit: str = "line"
    """What `places` count: `line` or `page`."""

    @staticmethod
    def from_lines(lines: list[str], parts: list[Section]) -> Document:
        """Text whose lines are those of the file."""
        return Document(lines=tuple(lines), positions=tuple(range(1, len(lines) + 1)), sections=tuple(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpan:
    """Where a chunk is from: lines or pages, both ends included."""

    start: int
    end: int
    unit: str
