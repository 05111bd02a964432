"""Tokens: kinds, values, positions, literal indexes, doc comments, limits. Errors: tests/data/language/rejected.mew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vedette.errors import ParseError
from vedette.language.parser.lexer import ParserLimits, tokenize


def kinds(text: str) -> list[str]:
    return [token.kind for token in tokenize(text).tokens[:-4]]


def values(text: str) -> list[object]:
    return list(tokenize(text).literals)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0..10", ["int", "..", "int"]),
        ("1.5..2.5", ["float", "..", "float"]),
        ("-1..*", ["-", "int", "..", "*"]),
        ("a.b", ["name", ".", "name"]),
        ("a:b::c", ["name", ":", "name", "::", "name"]),
        ("a<=b>=c!=d=>e->f", ["name", "<=", "name", ">=", "name", "!=", "name", "=>", "name", "->", "name"]),
        ("a++b+ +c", ["name", "++", "name", "+", "+", "name"]),
        ("$p?", ["param"]),
        ("$p??1", ["param", "??", "int"]),
        ("T??", ["name", "??"]),
        ("#a#7#$p", ["id", "id", "id"]),
        ('#"a b" "c"', ["id", "string"]),
        ("1.second.x", ["duration", ".", "name"]),
        ("1.secondx", ["int", ".", "name"]),
        ("5 s", ["int", "name"]),
        ("a--b\n-c", ["name", "-", "name"]),
        ("a/b/*c*/d", ["name", "/", "name", "name"]),
        ("@2026-01-31-5", ["timestamp", "-", "int"]),
        ("{[(|%)]};,", list("{[(|%)]};,")),
    ],
)
def test_kinds(text: str, found: list[str]) -> None:
    assert kinds(text) == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('""', ""),
        ('"\\u0041\\n"', "A\n"),
        ('"\\ud83d\\ude00"', "😀"),
        ('"tab\there"', "tab\there"),
        ("000123", 123),
        ("0" * 5000 + "1", 1),
        ("9223372036854775807", 2**63 - 1),
        ("1.5e3", 1500.0),
        ("1e-400", 0.0),
        ("30.seconds", timedelta(seconds=30)),
        ("1.005.seconds", timedelta(milliseconds=1005)),
        ("0.0004.seconds", timedelta(0)),
        ("1.min", timedelta(minutes=1)),
        ("2m", timedelta(minutes=2)),
        ("3w", timedelta(weeks=3)),
        ("999999999d", timedelta(days=999999999)),
        ("@2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("@2026-01-31T08:30+01:00", datetime(2026, 1, 31, 7, 30, tzinfo=UTC)),
        ("@2026-01-31T08:30:00.123987Z", datetime(2026, 1, 31, 8, 30, 0, 123000, tzinfo=UTC)),
        ("@1969-07-20T20:17Z", datetime(1969, 7, 20, 20, 17, tzinfo=UTC)),
    ],
)
def test_values(text: str, value: object) -> None:
    assert values(text) == [value]
    assert type(values(text)[0]) is type(value)


def test_names_keep_their_case_and_keywords_ignore_case() -> None:
    token = tokenize("Match").tokens[0]
    assert (token.text, token.symbol) == ("Match", "MATCH")


def test_positions_and_literal_indexes() -> None:
    tokens = tokenize('a = 5 AND "x" < 30s').tokens
    assert [token.span for token in tokens[:3]] == [(0, 1), (2, 3), (4, 5)]
    assert [(token.text, token.literal_index) for token in tokens if token.literal_index >= 0] == [
        ("5", 0),
        ('"x"', 1),
        ("30s", 2),
    ]


def test_ids_and_parameters_are_not_literals() -> None:
    assert values('#"a" #7 $p1 t1.x2') == []


def test_doc_comments_belong_to_the_following_token() -> None:
    lexed = tokenize("--- one\n---   two\n-- plain\nnode A {\n---three\na: Int }\n---- a line\n---")
    assert lexed.doc_comments == {0: "one\n  two", 3: "three", 7: ""}


def test_a_byte_order_mark_is_skipped() -> None:
    assert kinds("\ufeffMATCH") == ["name"]
    with pytest.raises(ParseError, match="E1005"):
        tokenize("MATCH \ufeff")


@pytest.mark.parametrize("character", ["\0", "\x01", "\x0b", "\x0c", "\x1f", "\x7f", "\ud800"])
@pytest.mark.parametrize("around", ["MATCH {}", '"{}"', "-- {}", "/* {} */"])
def test_control_characters_are_rejected_everywhere(character: str, around: str) -> None:
    with pytest.raises(ParseError, match="E1005") as raised:
        tokenize(around.format(character))
    assert str(raised.value).isprintable() or "\n" in str(raised.value)
    str(raised.value).encode()


def test_a_text_that_is_too_long() -> None:
    tokenize("a" * 100, ParserLimits(max_source_characters=100))
    with pytest.raises(ParseError, match=r"E1003.* 101 characters") as raised:
        tokenize("a" * 101, ParserLimits(max_source_characters=100))
    assert raised.value.code == "E1003"


def test_too_many_tokens() -> None:
    tokenize("a " * 100, ParserLimits(max_tokens=100))
    with pytest.raises(ParseError, match="E1003"):
        tokenize("a " * 101, ParserLimits(max_tokens=100))


def test_errors_are_collected_up_to_the_limit() -> None:
    with pytest.raises(ParseError) as raised:
        tokenize("' " * 50, ParserLimits(max_diagnostics=7))
    assert len(raised.value.diagnostics) == 7
    assert raised.value.fields == {"line": 1, "column": 1}


@pytest.mark.parametrize(
    "text",
    [
        "1" * 100_000,
        "1" * 100_000 + ".5",
        "1." + "5" * 100_000,
        "1" * 100_000 + "s",
        "1." + "5" * 9999 + ".seconds",
        "1e99999",
    ],
)
def test_huge_numbers_are_rejected_without_conversion(text: str) -> None:
    with pytest.raises(ParseError, match="E1002"):
        tokenize(text)
