"""Templates: keys, literals, and texts that need the lexer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.unit.language.parser.corpus import Case, accepted_scripts, rejected_scripts
from vedette.language.parser import parse_template
from vedette.language.parser.lexer import LITERAL_KINDS, tokenize
from vedette.language.parser.template import extract_literals
from vedette.values import Value

TAGS = {"string": "s", "int": "i", "float": "f", "timestamp": "t", "duration": "d"}


def test_key_and_literals() -> None:
    lifted = extract_literals('WATCH t1: T WHERE t1.a2 > 5 AND t1.b = "x" [ack_timeout: 30s] RETURN t1')
    assert lifted is not None
    assert lifted.literals == (5, "x", timedelta(seconds=30))
    assert lifted.key == (
        "WATCH t1: T WHERE t1.a2 > ",
        "i",
        " AND t1.b = ",
        "s",
        " [ack_timeout: ",
        "d",
        "] RETURN t1",
    )


@pytest.mark.parametrize("case", accepted_scripts(), ids=str)
def test_the_lexer_finds_the_same_literals(case: Case) -> None:
    lifted = extract_literals(case.text)
    if lifted is None:
        return
    lexed = tokenize(case.text)
    assert lifted.literals == lexed.literals
    tags = [TAGS[token.kind] for token in lexed.tokens if token.kind in LITERAL_KINDS]
    assert list(lifted.key[1::2]) == tags


def test_most_of_the_corpus_has_a_template() -> None:
    """All texts except those with comments or quoted ids."""
    plain = [
        case
        for case in accepted_scripts()
        if "--" not in case.text and "/*" not in case.text and '#"' not in case.text
    ]
    assert len(plain) > 40
    assert all(extract_literals(case.text) for case in plain)


@pytest.mark.parametrize(
    ("text", "literals"),
    [
        ("a1 b2c #7 $p3 x.y4", ()),
        ("0..10", (0, 10)),
        ("[1, 2.5, 1e3, 10s, 1.5.seconds]", (1, 2.5, 1000.0, timedelta(seconds=10), timedelta(seconds=1.5))),
        ("a-5", (5,)),
        ("a=5", (5,)),
        ("(5)", (5,)),
        ('"a -- b" "/*"', ("a -- b", "/*")),
        ('"a\\n" "" "\\\\"', ("a\n", "", "\\")),
        ("007", (7,)),
        ("9223372036854775807", (2**63 - 1,)),
        ("5.x", (5,)),
    ],
)
def test_literals(text: str, literals: tuple[Value, ...]) -> None:
    lifted = extract_literals(text)
    assert lifted is not None
    assert lifted.literals == literals
    assert lifted.literals == tokenize(text).literals


@pytest.mark.parametrize(
    "text",
    [
        "TICK -- comment",
        "TICK /* comment */",
        'KILL #"an id"',
        "RETURN 9223372036854775808",
        "RETURN 99999999999999999999999",
        "RETURN 1e999",
        "RETURN @2026-02-30",
        'RETURN "\\q"',
        'RETURN "\\ud800"',
        "RETURN 99999999999w",
        "a" * 1_048_577,
    ],
)
def test_texts_that_need_the_lexer(text: str) -> None:
    assert extract_literals(text) is None


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("RETURN 5", "RETURN 5.0"),
        ("RETURN 5", "RETURN 5s"),
        ('RETURN "5"', "RETURN 5"),
        ("RETURN 5", "RETURN t"),
        ("RETURN 5", "RETURN i"),
        ("RETURN 5 .seconds", "RETURN 5.seconds"),
        ("RETURN 5s", "RETURN 5 s"),
    ],
)
def test_texts_with_different_keys(left: str, right: str) -> None:
    first, second = extract_literals(left), extract_literals(right)
    assert first is not None
    assert second is not None
    assert first.key != second.key


def test_a_rejected_text_never_has_the_template_key_of_an_accepted_one() -> None:
    accepted = {lifted.key for case in accepted_scripts() if (lifted := extract_literals(case.text))}
    rejected = {lifted.key for case in rejected_scripts() if (lifted := extract_literals(case.text))}
    assert not accepted & rejected


def test_literals_that_are_part_of_the_tree_are_inlined() -> None:
    text = 'MATCH e+(a, b) [depth: 2..5] WHERE a.x = 7 RETURN COLLECT(b.y WHERE b.z = "q")[limit: 3] LIMIT 9'
    lifted = parse_template(text)
    assert lifted.literals == (2, 5, 7, "q", 3, 9)
    assert lifted.inlined_literals == {0, 1, 4}
    least = parse_template("TICK -9223372036854775808; MATCH () RETURN -9223372036854775808")
    assert least.inlined_literals == {0, 1}
