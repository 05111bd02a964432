"""Declarations and statements in one text: where each part begins, what is whole, open or wrong, where errors point."""

from __future__ import annotations

import pytest

from tests.unit.language.parser.corpus import Case, accepted_ontologies, accepted_scripts, rejected_scripts
from vedette.cli.scripts import check_completeness, relocate
from vedette.errors import AnalysisError, VedetteError
from vedette.language.diagnostics import Diagnostic, Span
from vedette.language.parser import parse_declarations, parse_script, parse_statement
from vedette.language.parser.source_file import DeclarationPart, StatementPart, parse_source_file

MIXED = """\
-- a file
--- What is to be done.
node Task { title: String };
node Person
SPAWN t: Task { title = "a" } SPAWN p: Person;
MATCH t: Task RETURN t
edge has(p: Person, t: Task)
LINK has(#p, #t)
"""


def test_parts_are_in_order_and_adjacent_declarations_are_one_part() -> None:
    parts = parse_source_file(MIXED)
    assert [type(part).__name__ for part in parts] == [
        *[
            "DeclarationPart",
            "StatementPart",
            "StatementPart",
            "StatementPart",
            "DeclarationPart",
            "StatementPart",
        ]
    ]
    first = parts[0]
    assert isinstance(first, DeclarationPart)
    assert first.trees == parse_declarations(MIXED.partition("SPAWN")[0])
    assert first.trees[0].doc == "What is to be done."
    assert parts[2].text == "SPAWN p: Person"
    for part in parts:
        assert MIXED[part.start :].startswith(part.text)
        assert MIXED[part.first_token_offset :].lstrip() == MIXED[part.first_token_offset :]


@pytest.mark.parametrize("case", accepted_scripts(), ids=str)
def test_statement_parts_equal_the_parser(case: Case) -> None:
    parts = parse_source_file(case.text)
    assert tuple(part.tree for part in parts if isinstance(part, StatementPart)) == parse_script(case.text)
    for part in parts:
        assert isinstance(part, StatementPart)
        assert parse_statement(part.text) == part.tree, "a part says the same alone"


@pytest.mark.parametrize("case", accepted_ontologies(), ids=str)
def test_declaration_parts_equal_the_parser(case: Case) -> None:
    parts = parse_source_file(case.text)
    trees = tuple(tree for part in parts if isinstance(part, DeclarationPart) for tree in part.trees)
    assert trees == parse_declarations(case.text)


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


def test_all_errors_of_a_text_are_reported() -> None:
    text = "node Task { title String }\nMATCH t: Task RETUR t\nSPAWN p: Person\nedge has(\n"
    with pytest.raises(VedetteError) as caught:
        parse_source_file(text)
    places = [(d.line, d.column) for d in caught.value.diagnostics if isinstance(d, Diagnostic)]
    assert places == [(1, 19), (2, 15), (5, 1)]


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
