"""Where in a text something is, and how a mistake in it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["NO_SPAN", "Diagnostic", "Span", "line_and_column"]

_MAX_SHOWN_COLUMNS = 160


class Span(NamedTuple):
    """A half-open range of character offsets into the source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The range from the start of this span to the end of `other`."""
        return Span(self.start, max(self.end, other.end))


NO_SPAN = Span(0, 0)
"""The span of what was built and not read: filter lists, rewrites, tests."""


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Both counted from one, in characters."""
    offset = min(offset, len(source))
    line = source.count("\n", 0, offset) + 1
    return line, offset - (source.rfind("\n", 0, offset) + 1) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One mistake: a code, what is wrong and what to do, and where. Several may be raised in one error."""

    code: str
    message: str
    span: Span
    source: str

    @property
    def line(self) -> int:
        return line_and_column(self.source, self.span.start)[0]

    @property
    def column(self) -> int:
        return line_and_column(self.source, self.span.start)[1]

    def render(self) -> str:
        line, column = line_and_column(self.source, self.span.start)
        start = self.source.rfind("\n", 0, min(self.span.start, len(self.source))) + 1
        end = self.source.find("\n", start)
        text = self.source[start : len(self.source) if end < 0 else end]
        shift = max(0, column - _MAX_SHOWN_COLUMNS // 2)
        shown = "".join(map(_printable, text[shift : shift + _MAX_SHOWN_COLUMNS]))
        width = max(1, min(self.span.end - self.span.start, len(shown) - (column - 1 - shift)))
        gutter = f"{line:>4} | "
        pointer = " " * (len(gutter) + column - 1 - shift) + "^" * width
        return f"{gutter}{shown}\n{pointer} {self.message} (line {line}, column {column})"


def _printable(character: str) -> str:
    """One character wide, so that the line underneath still points; half a surrogate pair could not be encoded."""
    if character.isprintable():
        return character
    return {"\t": " ", "\r": " ", "\0": "␀"}.get(character, "\N{REPLACEMENT CHARACTER}")
