"""Texts that users type: whether a text is complete, and where in it an error of one part is."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from vedette.errors import VedetteError
from vedette.language.diagnostics import Diagnostic, Span
from vedette.language.parser.source_file import SourcePart, parse_source_file

__all__ = ["Completeness", "check_completeness", "relocate"]

Completeness: TypeAlias = Literal["whole", "open", "wrong"]


def check_completeness(text: str) -> Completeness:
    """`whole`; `open`: it ends where more is expected, so more text could still make it right; or `wrong`."""
    try:
        parse_source_file(text)
    except VedetteError as error:
        first = error.diagnostics[0] if error.diagnostics else None
        if not isinstance(first, Diagnostic):
            return "wrong"
        unclosed_comment = text.startswith("/*", first.span.start) and first.span.end == len(text)
        return "open" if first.span.start == len(text) or unclosed_comment else "wrong"
    return "whole"


def relocate(error: VedetteError, part: SourcePart, source: str) -> VedetteError:
    """Make the places that an error of a part points to places in the whole text."""
    moved = [_moved(d, part, source) if isinstance(d, Diagnostic) else d for d in error.diagnostics]
    error.diagnostics = tuple(moved)
    if moved and isinstance(moved[0], Diagnostic) and "line" in error.fields:
        error.fields.update(line=moved[0].line, column=moved[0].column)
    return error


def _moved(diagnostic: Diagnostic, part: SourcePart, source: str) -> Diagnostic:
    if diagnostic.source != part.text:
        return diagnostic  # it points into a text that was defined before
    span = Span(diagnostic.span.start + part.start, diagnostic.span.end + part.start)
    return replace(diagnostic, span=span, source=source)
