"""Error messages of the parser: what was found, what was expected, advice, position."""

from __future__ import annotations

import pytest

from tests.unit.language.parser.corpus import Case, places, rejected_ontologies, rejected_scripts
from vedette.errors import InvalidStatement, ParseError, VedetteError, WatchError
from vedette.language.parser import (
    parse_declarations,
    parse_expression,
    parse_script,
    parse_statement,
    parse_watch_options,
)
from vedette.language.parser.lexer import ParserLimits
from vedette.language.syntax.statements import Tick


@pytest.mark.parametrize("case", rejected_scripts(), ids=str)
def test_rejected_scripts(case: Case) -> None:
    with pytest.raises((ParseError, InvalidStatement, WatchError)) as raised:
        parse_script(case.text)
    assert places(raised.value) == case.places


@pytest.mark.parametrize("case", rejected_ontologies(), ids=str)
def test_rejected_ontologies(case: Case) -> None:
    with pytest.raises(ParseError) as raised:
        parse_declarations(case.text)
    assert places(raised.value) == case.places


def test_an_error_names_found_and_expected_tokens_and_the_position() -> None:
    with pytest.raises(ParseError) as raised:
        parse_statement("MATCH t: Task\nWHERE t.x == 3 RETURN t")
    error = raised.value
    message = "found `=`, expected an expression; equality is one `=`, at most is `<=`"
    assert str(error).splitlines() == [
        f"parse error: E1001 UNEXPECTED_TOKEN: {message}",
        "   2 | WHERE t.x == 3 RETURN t",
        f"                  ^ {message} (line 2, column 12)",
    ]
    assert error.fields == {"line": 2, "column": 12}


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("node A {}", "define()"),
        ("x = MATCH t: T RETURN t", "only a WATCH"),
        ("MATCH order: O RETURN 1", "`ORDER` is a keyword"),
        ("MATCH a: A OPTIONAL MATCH b: B MATCH c: C RETURN a", "before the first OPTIONAL MATCH"),
        ("MATCH t: T [mode: watch] RETURN t", "only WATCH takes options"),
        ("MATCH t: T WHERE t.a WHERE t.b RETURN t", "AND"),
        ("WATCH t: T RETURN t ORDER BY t.a", "[ordering: attribute(…)]"),
        ("WATCH t: T [mode: watch] WHERE t.a RETURN t", "write WHERE before the options"),
        ("WATCH t: T OPTIONAL MATCH u: U RETURN t", "EXISTS"),
        ("WALK FROM #a", "WALK is not available"),
        ("LINK e: f(a) AS g", "called `e` already"),
        ("MATCH t: T RETURN 'x'", "double quotes"),
    ],
)
def test_errors_give_advice(text: str, advice: str) -> None:
    with pytest.raises(VedetteError) as raised:
        parse_script(text)
    assert advice in raised.value.text


def test_classes_of_errors() -> None:
    with pytest.raises(
        InvalidStatement, match="invalid statement type: E1102 NOT_AVAILABLE: WALK is not available"
    ):
        parse_statement("WALK FROM #a FOLLOW knows RETURN PATH")
    with pytest.raises(WatchError, match="watch error: E8009 INVALID_WATCH_OPTION"):
        parse_statement("WATCH t: T OPTIONAL MATCH u: U RETURN t")


def test_the_first_error_decides_the_class_and_all_are_reported() -> None:
    with pytest.raises(ParseError) as raised:
        parse_script("MATCH; WALK FROM #a; KILL 5")
    assert places(raised.value) == ("E1001 1:6", "E1102 1:8", "E1001 1:27")
    assert str(raised.value).count("^") >= 3


def test_one_statement_exactly() -> None:
    assert isinstance(parse_statement("; TICK ;"), Tick)
    with pytest.raises(InvalidStatement, match=r"E1101 NOT_ONE_STATEMENT: .*found 2") as raised:
        parse_statement("TICK; TICK")
    assert places(raised.value) == ("E1101 1:7",)
    with pytest.raises(InvalidStatement, match="found 0"):
        parse_statement(" -- nothing\n")


def test_errors_are_collected_up_to_the_limit() -> None:
    with pytest.raises(ParseError) as raised:
        parse_script("KILL 5; " * 50, limits=ParserLimits(max_diagnostics=9))
    assert len(raised.value.diagnostics) == 9


@pytest.mark.parametrize("text", ["", "a b", "a +", "1, 2", "a; b"])
def test_parse_expression_reads_the_whole_text(text: str) -> None:
    with pytest.raises(ParseError, match="E1001"):
        parse_expression(text)


@pytest.mark.parametrize("text", ["", "[]", "[a: 1", "[a: 1] b", "a: 1", "[a: 1];"])
def test_parse_watch_options_reads_the_whole_text(text: str) -> None:
    with pytest.raises(ParseError, match="E1001"):
        parse_watch_options(text)
