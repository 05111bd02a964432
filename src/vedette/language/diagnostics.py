"""Positions in a source text, and the errors that point at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vedette.errors import VedetteError

__all__ = ["NO_SPAN", "Diagnostic", "DiagnosticCollector", "Span", "line_and_column"]

_MAX_SHOWN_COLUMNS = 160
"""Characters of a source line that `render` shows, around the error."""


class Span(NamedTuple):
    """A half-open range of character offsets into the source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """Return the range from the start of this span to the end of `other`."""
        return Span(self.start, max(self.end, other.end))


NO_SPAN = Span(0, 0)
"""The span of a node that does not come from a text: filter lists, rewritten trees, tests."""


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Return line and column of a character offset, both counted from 1."""
    offset = min(offset, len(source))
    line = source.count("\n", 0, offset) + 1
    return line, offset - (source.rfind("\n", 0, offset) + 1) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One error in a text. An exception may carry several."""

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
        """Return the source line with the error underlined, the message, line and column."""
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


class DiagnosticCollector:
    """Collects the errors of one text, so that one exception can report all of them."""

    def __init__(self, source: str, limit: int) -> None:
        """`limit` is the number of errors to keep; later ones are dropped."""
        self.source = source
        self.limit = limit
        self.found: list[Diagnostic] = []

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self.limit

    def add(self, diagnostic: Diagnostic) -> None:
        if not self.is_full:
            self.found.append(diagnostic)

    def report(self, code: str, message: str, span: Span) -> None:
        self.add(Diagnostic(code=code, message=message, span=span, source=self.source))

    def raise_first(
        self, make_error: Callable[[Sequence[Diagnostic]], VedetteError], *, sort: bool = False
    ) -> None:
        """Raise the error that `make_error` builds from all diagnostics; return if there are none.

        The first diagnostic decides the error's code. `sort` orders the diagnostics by their position in the text.
        """
        if not self.found:
            return
        if sort:
            self.found.sort(key=lambda diagnostic: diagnostic.span.start)
        raise make_error(self.found)


def _printable(character: str) -> str:
    """Return a printable character of width one, so that the underline stays aligned.

    A lone surrogate is replaced too, because it cannot be encoded for output.
    """
    if character.isprintable():
        return character
    return {"\t": " ", "\r": " ", "\0": "␀"}.get(character, "\N{REPLACEMENT CHARACTER}")
