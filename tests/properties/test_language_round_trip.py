"""`parse(print(tree)) == tree` for generated trees; compared by repr too, which distinguishes 1 from 1.0."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.strategies.language_trees import declarations, expressions, options, statements
from vedette.language.parser import (
    parse_declarations,
    parse_expression,
    parse_script,
    parse_statement,
    parse_watch_options,
)
from vedette.language.printer import (
    print_declarations,
    print_expression,
    print_script,
    print_statement,
    print_watch_options,
)


def same(left: Any, right: Any) -> bool:
    return left == right and spelled(left) == spelled(right)


def spelled(tree: Any) -> str:
    """Return the repr with the items of a set in order."""
    return re.sub(r"frozenset\(\{(.*?)\}\)", lambda found: str(sorted(found[1].split(", "))), repr(tree))


@given(expressions)
def test_expressions_round_trip(tree: Any) -> None:
    assert same(parse_expression(print_expression(tree)), tree)


@given(statements)
def test_statements_round_trip(tree: Any) -> None:
    assert same(parse_statement(print_statement(tree)), tree)


@given(st.lists(statements, max_size=3).map(tuple))
def test_scripts_round_trip(trees: Any) -> None:
    assert same(parse_script(print_script(trees)), trees)


@given(options)
def test_options_round_trip(trees: Any) -> None:
    assert same(parse_watch_options(print_watch_options(trees)), trees)


@given(st.lists(declarations, max_size=3).map(tuple))
def test_declarations_round_trip(trees: Any) -> None:
    assert same(parse_declarations(print_declarations(trees)), trees)
