"""Whether a text is complete, and where an error of one part is in the whole text."""

from __future__ import annotations

import pytest

from tests.unit.language.parser.corpus import Case, rejected_scripts
from vedette.cli.scripts import check_completeness, relocate
from vedette.errors import AnalysisError
from vedette.language.diagnostics import Diagnostic, Span
from vedette.language.parser.source_file import parse_source_file


@pytest.mark.parametrize("case", rejected_scripts(), ids=str)
def test_rejected_text_is_never_complete(case: Case) -> None:
    if any(word in case.text.upper() for word in ("NODE ", "EDGE ")):
        return  # a declaration among statements has a place here
    assert check_completeness(case.text) != "complete"


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("", "complete"),
        ("-- a comment", "complete"),
        ("MATCH t: Task RETURN t", "complete"),
        ("node Task", "complete"),
        ("node = WATCH t: Task RETURN t", "complete"),
        ("MATCH t: Task", "incomplete"),
        ("MATCH t: Task\n", "incomplete"),
        ("MATCH t: Task RETURN t; SPAWN", "incomplete"),
        ("node Task {", "incomplete"),
        ("ontology Board { node Task;", "incomplete"),
        ("EXPLAIN", "incomplete"),
        ("/* not closed", "incomplete"),
        ("MATCH t: Task;", "invalid"),
        ('SPAWN t: Task { title = "not closed', "invalid"),
        ("nodde Task", "invalid"),
        ("[sealed] node Task", "complete"),
        ("WATCH t: Task RETURN t [buffer: 1]", "invalid"),
        ("MATCH t: Task RETURN t t", "invalid"),
        ("\0", "invalid"),
    ],
)
def test_completeness(text: str, reading: str) -> None:
    assert check_completeness(text) == reading


def test_error_of_a_part_points_into_the_whole_text() -> None:
    source = "BEGIN;\n  MATCH t: Task RETURN t.x"
    part = parse_source_file(source)[1]
    mistake = Diagnostic(code="E2002", message="no x", span=Span(21, 24), source=part.text)
    elsewhere = Diagnostic(code="E2002", message="no y", span=Span(0, 1), source="another text")
    error = AnalysisError("E2002", "no x", fields={"line": 1, "column": 22}, diagnostics=[mistake, elsewhere])
    moved, untouched = relocate(error, part, source).diagnostics
    assert isinstance(moved, Diagnostic)
    assert (moved.line, moved.column, source[slice(*moved.span)]) == (2, 24, "t.x")
    assert untouched is elsewhere
    assert error.fields == {"line": 2, "column": 24}
