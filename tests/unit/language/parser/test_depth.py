"""Nesting in the text and in the tree is limited well below Python's recursion limit."""

from __future__ import annotations

import pytest

from tests.unit.language.parser.corpus import places
from vedette.errors import ParseError
from vedette.language.parser import parse_declarations, parse_expression, parse_script

DEEP = 10_000
CHAINS = {
    "parentheses": "MATCH t: T RETURN " + "(" * DEEP,
    "closed parentheses": "MATCH t: T RETURN " + "(" * DEEP + "1" + ")" * DEEP,
    "NOT": "MATCH t: T RETURN " + "NOT " * DEEP + "a",
    "minus": "MATCH t: T RETURN " + "- " * DEEP + "a",
    "lists": "MATCH t: T RETURN " + "[" * DEEP,
    "calls": "MATCH t: T RETURN " + "f(" * DEEP,
    "aggregates": "MATCH t: T RETURN " + "COUNT(" * DEEP,
    "EXISTS": "MATCH t: T WHERE " + "EXISTS(a: T WHERE " * DEEP,
    "EXISTS in targets": "MATCH t: T WHERE " + "EXISTS(e(f(" * DEEP,
    "pattern aggregates": "MATCH t: T WHERE " + "COUNT(a: T WHERE " * DEEP,
    "types": "MATCH t: " + "(" * DEEP,
    "EXPLAIN": "EXPLAIN " * DEEP + "TICK",
    "??": "MATCH t: T RETURN " + "a ?? " * DEEP + "a",
    "plus": "MATCH t: T RETURN " + "a + " * DEEP + "a",
    "OR": "MATCH t: T WHERE " + "a OR " * DEEP + "a RETURN t",
    "comparisons": "MATCH t: T WHERE " + "a = " * DEEP + "a RETURN t",
    "attributes": "MATCH t: T RETURN a" + ".b" * DEEP,
    "type tests": "MATCH t: T RETURN a" + ":b" * DEEP,
    "IS NULL": "MATCH t: T RETURN a" + " IS NULL" * DEEP,
    "chains in parentheses": "MATCH t: T RETURN " + "(" * 100 + "a" + ("+ a" * 150 + ")") * 100,
    "options": "WATCH t: T [a: " + "f(" * DEEP,
}


@pytest.mark.parametrize("name", CHAINS)
def test_nesting_is_limited(name: str) -> None:
    with pytest.raises(ParseError, match="E1004 NESTED_TOO_DEEPLY"):
        parse_script(CHAINS[name])


def test_nesting_of_declarations_is_limited() -> None:
    for text in (
        "type A = " + "(" * DEEP,
        "node A { a: Int = " + "(" * DEEP,
        "constraint c: a: A => " + "NOT " * DEEP,
    ):
        with pytest.raises(ParseError, match="E1004"):
            parse_declarations(text)


def test_nesting_below_the_limit_is_accepted() -> None:
    parse_expression("(" * 190 + "1" + ")" * 190)
    parse_expression(" OR ".join(["a"] * 200))
    parse_expression(" OR ".join(["(" + " OR ".join(["a"] * 100) + ")"] * 100))
    parse_expression("[" + ", ".join(["1"] * 5000) + "]")


def test_parsing_continues_after_a_statement_that_is_too_deep() -> None:
    with pytest.raises(ParseError) as raised:
        parse_script(f"MATCH t: T RETURN {'(' * 500}1{')' * 500}; KILL 5; TICK")
    assert [place.split()[0] for place in places(raised.value)] == ["E1004", "E1001"]


def test_a_deep_call_stack_gives_the_same_error() -> None:
    def dive(levels: int) -> None:
        if levels:
            dive(levels - 1)
        else:
            parse_expression("(" * 190 + "1" + ")" * 190)

    with pytest.raises(ParseError, match="E1004"):
        dive(850)
