"""Regular expressions of `[match: …]` compared with Python's `re`, and rejected patterns."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.language.schema.regex_automaton import compile_regex
from vedette.language.schema.regex_parser import RegexError

ATOMS = [
    "a",
    "b",
    "1",
    ".",
    "[ab]",
    "[^a]",
    "[a-c1]",
    r"\d",
    r"\W",
    r"\.",
    r"[\w-]",
    r"\x61",
    r"[]a]",
    "é",
    "(?:)",
]
LEAVES = st.sampled_from(ATOMS)
QUANTIFIERS = st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,2}", "{,2}", "{1,}"])


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, QUANTIFIERS).map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


PATTERNS = st.recursive(LEAVES, larger, max_leaves=8)
ANCHORED = st.tuples(st.sampled_from(["^", ""]), PATTERNS, st.sampled_from(["$", "|^a$"]))
TEXTS = st.text("ab1.\né_", max_size=8)


@given(PATTERNS, TEXTS)
def test_without_an_anchor_the_whole_text_must_match(pattern, text):
    assert compile_regex(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)


@given(ANCHORED.map("".join), TEXTS)
def test_with_an_anchor_the_pattern_is_found_anywhere(pattern, text):
    strict = pattern.replace("$", r"\Z")  # Python's $ also matches before a final newline
    assert compile_regex(pattern).matches(text) == (re.search(strict, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=a)", "look-around"),
        ("(?<!a)", "look-around"),
        ("(?i)a", "flags"),
        (r"(a)\1", "backreferences"),
        (r"\bx", "escape"),
        (r"\Ax", "escape"),
        ("(a", "not closed"),
        ("a)", "closing parenthesis"),
        ("*a", "nothing to repeat"),
        ("(|+)", "nothing to repeat"),
        ("a**", "quantifier after a quantifier"),
        ("a*+", "possessive"),
        ("^*", "anchor cannot be repeated"),
        ("a{3,2}", "minimum that is greater"),
        ("a{1001}", "repetitions"),
        ("a{99999999999}", "repetitions"),
        ("[b-a]", "smaller to a larger"),
        (r"[\d-z]", "smaller to a larger"),
        ("[a", "ends too early"),
        ("\\", "ends too early"),
        (r"\x6", "hexadecimal"),
        ("(" * 60 + ")" * 60, "nested deeper"),
        ("(a{1000}){1000}", "states"),
        ("((((){1000}){1000}){1000}){1000}", "states"),
    ],
)
def test_rejected(pattern, words):
    with pytest.raises(RegexError, match=words):
        compile_regex(pattern)


def test_braces_that_are_not_quantifiers_match_literally():
    assert compile_regex("a{b}").matches("a{b}")
    assert compile_regex("{}").matches("{}")


def test_named_groups_match_like_groups():
    assert compile_regex("(?P<year>[0-9]{4})-(?P<month>[0-9]{2})").matches("2024-03")


@pytest.mark.parametrize("pattern", ["(a|a)*b", "(a*)*b", "(a+)+b", "a*a*a*a*a*a*b", "(.*.*)*x$"])
def test_no_pattern_backtracks(pattern):
    assert not compile_regex(pattern).matches("a" * 10_000)


def test_the_cache_is_bounded():
    matcher = compile_regex("(a|b)*a(a|b){14}")
    rng = random.Random(0)
    for _ in range(3):
        matcher.matches("".join(rng.choices("ab", k=10_000)))
    assert matcher.matches("a" * 15)
    assert len(matcher._known) <= 20_001
