"""Checks whether a text is complete, and converts error positions from a part to the whole text."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from vedette.errors import VedetteError
from vedette.language.diagnostics import Diagnostic, Span
from vedette.language.parser.source_file import SourcePart, parse_source_file

__all__ = ["Completeness", "check_completeness", "relocate"]

Completeness: TypeAlias = Literal["complete", "incomplete", "invalid"]


def check_completeness(text: str) -> Completeness:
    """Return whether the text parses. `incomplete` means that more text could make it valid."""
    try:
        parse_source_file(text)
    except VedetteError as error:
        first = error.diagnostics[0] if error.diagnostics else None
        if not isinstance(first, Diagnostic):
            return "invalid"
        unclosed_comment = text.startswith("/*", first.span.start) and first.span.end == len(text)
        return "incomplete" if first.span.start == len(text) or unclosed_comment else "invalid"
    return "complete"


def relocate(error: VedetteError, part: SourcePart, source: str) -> VedetteError:
    """Convert the positions of an error from one part to the whole text."""
    moved = [
        _relocate_diagnostic(d, part, source) if isinstance(d, Diagnostic) else d for d in error.diagnostics
    ]
    error.diagnostics = tuple(moved)
    if moved and isinstance(moved[0], Diagnostic) and "line" in error.fields:
        error.fields.update(line=moved[0].line, column=moved[0].column)
    return error


def _relocate_diagnostic(diagnostic: Diagnostic, part: SourcePart, source: str) -> Diagnostic:
    if diagnostic.source != part.text:
        return diagnostic  # it points into an earlier definition
    span = Span(diagnostic.span.start + part.start, diagnostic.span.end + part.start)
    return replace(diagnostic, span=span, source=source)
