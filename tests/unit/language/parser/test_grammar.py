"""docs/reference/grammar.md describes what the parser accepts: an interpreter of the grammar reads the same corpus."""

from __future__ import annotations

import pytest

from tests.support.paths import DOCS
from tests.unit.language.parser.corpus import (
    Case,
    accepted_ontologies,
    accepted_options,
    accepted_scripts,
    expressions,
    rejected_ontologies,
    rejected_scripts,
)
from tests.unit.language.parser.ebnf import read_page
from vedette.errors import ParseError
from vedette.language.syntax.grammar import NON_CALLABLE_KEYWORDS, RESERVED_KEYWORDS

PAGE = DOCS / "reference" / "grammar.md"
GRAMMAR = read_page(PAGE)
ROOTS = {"Script", "OntologyFile"}


def test_every_rule_is_defined_and_used() -> None:
    assert not GRAMMAR.undefined
    assert GRAMMAR.rules.keys() - GRAMMAR.mentioned == ROOTS


def test_the_page_lists_the_reserved_words() -> None:
    text = PAGE.read_text(encoding="utf-8")
    reserved = text.partition("may be called:")[2].partition(". Closed")
    closed = reserved[2].partition("either:")[2].partition("\n## ")[0]
    assert set(reserved[0].split()) == RESERVED_KEYWORDS
    assert set(closed.replace(".", "").split()) == NON_CALLABLE_KEYWORDS


@pytest.mark.parametrize("case", accepted_scripts(), ids=str)
def test_accepted_scripts(case: Case) -> None:
    assert GRAMMAR.accepts("Script", case.text)


@pytest.mark.parametrize("case", accepted_ontologies(), ids=str)
def test_accepted_ontologies(case: Case) -> None:
    assert GRAMMAR.accepts("OntologyFile", case.text)


@pytest.mark.parametrize("case", accepted_options(), ids=str)
def test_accepted_options(case: Case) -> None:
    assert GRAMMAR.accepts("Script", f"ALTER WATCH #w SET {case.text}")


@pytest.mark.parametrize("text", [text for text, _ in expressions()])
def test_accepted_expressions(text: str) -> None:
    assert GRAMMAR.accepts("Expr", text)


@pytest.mark.parametrize(
    ("start", "case"),
    [("Script", case) for case in rejected_scripts()]
    + [("OntologyFile", case) for case in rejected_ontologies()],
    ids=str,
)
def test_rejected_texts(start: str, case: Case) -> None:
    """Lexical errors occur before the grammar applies."""
    try:
        accepted = GRAMMAR.accepts(start, case.text)
    except ParseError:
        accepted = False
    assert accepted == case.fits_grammar
