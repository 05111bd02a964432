"""The language reference lists all functions, existing error codes and all pages."""

from __future__ import annotations

import re

from tests.support.paths import DOCS
from vedette.errors import CODES
from vedette.language.functions.registry import FUNCTIONS

REFERENCE = DOCS / "reference"


def first_cells(text: str) -> list[str]:
    """The first cell of every row of every table."""
    rows = (line for line in text.splitlines() if line.startswith("| "))
    return [re.split(r"(?<!\\)\|", row)[1].strip() for row in rows]


def test_the_page_of_expressions_lists_every_function_and_no_other() -> None:
    text = (REFERENCE / "language" / "expressions.md").read_text(encoding="utf-8")
    functions = text.partition("## Functions")[2]
    listed = {name for cell in first_cells(functions) for name in re.findall(r"`([a-z_0-9]+)\(", cell)}
    assert listed == set(FUNCTIONS)


def test_the_language_page_links_every_page_of_the_language() -> None:
    text = (REFERENCE / "language.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(language/([a-z0-9]+\.md)\)", text))
    assert linked == {page.name for page in (REFERENCE / "language").glob("*.md")}


def test_pages_name_only_codes_that_exist() -> None:
    pages = [REFERENCE / "language.md", *sorted((REFERENCE / "language").glob("*.md"))]
    named = {code for page in pages for code in re.findall(r"\bE\d{4}\b", page.read_text(encoding="utf-8"))}
    assert named <= set(CODES)
