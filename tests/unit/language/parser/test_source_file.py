"""Files that mix declarations and statements: the parts, their offsets, and all errors at once."""

from __future__ import annotations

import pytest

from tests.unit.language.parser.corpus import Case, accepted_ontologies, accepted_scripts
from vedette.errors import VedetteError
from vedette.language.diagnostics import Diagnostic
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


def test_all_errors_of_a_text_are_reported() -> None:
    text = "node Task { title String }\nMATCH t: Task RETUR t\nSPAWN p: Person\nedge has(\n"
    with pytest.raises(VedetteError) as caught:
        parse_source_file(text)
    places = [(d.line, d.column) for d in caught.value.diagnostics if isinstance(d, Diagnostic)]
    assert places == [(1, 19), (2, 15), (5, 1)]
