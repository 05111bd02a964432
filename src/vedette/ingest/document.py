"""What extraction yields and chunking takes: lines of text, where each comes from, and where a new part begins."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Document", "Part", "Place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A heading, a function, a page: a good place to begin a chunk."""

    start: int
    """Index of its first line."""
    title: str
    """`Install > Linux`, `class Store.append`, `page 3`; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    lines: tuple[str, ...]
    places: tuple[int, ...]
    """For each line, the line of the file (from 1) it comes from, or the page."""
    parts: tuple[Part, ...] = ()
    """In the order of `start`; what comes before the first belongs to none."""
    unit: str = "line"
    """What `places` count: `line` or `page`."""

    @staticmethod
    def of_lines(lines: list[str], parts: list[Part]) -> Document:
        """Text whose lines are those of the file."""
        return Document(lines=tuple(lines), places=tuple(range(1, len(lines) + 1)), parts=tuple(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a chunk is from: lines or pages, both ends included."""

    start: int
    end: int
    unit: str
