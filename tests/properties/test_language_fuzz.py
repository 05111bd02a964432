"""Hostile texts: the parser returns a tree or raises a typed error, in time linear in the text."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import DOCS
from tests.unit.language.parser.corpus import (
    accepted_ontologies,
    accepted_scripts,
    rejected_ontologies,
    rejected_scripts,
)
from tests.unit.language.parser.ebnf import read_page
from vedette.errors import InvalidStatement, ParseError, VedetteError, WatchError
from vedette.language.parser import (
    parse_declarations,
    parse_expression,
    parse_script,
    parse_statement,
    parse_template,
    parse_watch_options,
)
from vedette.language.parser.lexer import tokenize
from vedette.language.parser.template import extract_literals

READERS: tuple[Callable[[str], object], ...] = (
    parse_script,
    parse_statement,
    parse_template,
    parse_declarations,
    parse_expression,
    parse_watch_options,
)
SCRIPTS = [case.text for case in accepted_scripts() + rejected_scripts()]
ONTOLOGIES = [case.text for case in accepted_ontologies() + rejected_ontologies()]
GRAMMAR = read_page(DOCS / "reference" / "grammar.md")


def pieces(texts: list[str]) -> list[str]:
    """Return the tokens of these texts; a text with lexical errors has none."""
    found: set[str] = set()
    for text in texts:
        try:
            found.update(token.text for token in tokenize(text).tokens if token.text)
        except ParseError:
            continue
    return sorted(found)


TOKENS = st.sampled_from(pieces(SCRIPTS + ONTOLOGIES))
ODD = [
    '"',
    "\\",
    "@",
    "#",
    "$",
    "'",
    "--",
    "/*",
    "*/",
    "\0",
    "\ud800",
    "é",
    "9" * 30,
    "1e999",
    "\n",
    "(" * 50,
    "]" * 3,
]


def read_all(text: str) -> None:
    for read in READERS:
        try_to(read, text)
    extract_literals(text)


def try_to(read: Callable[[str], object], text: str) -> None:
    """Parse the text. An untyped error fails the test, and so does an error that cannot be encoded."""
    try:
        read(text)
    except (ParseError, InvalidStatement, WatchError) as error:
        str(error).encode()


@st.composite
def damaged(draw: st.DrawFn, texts: list[str]) -> str:
    """Generate a text of the corpus with a few random edits."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        middle = draw(st.one_of(st.just(""), TOKENS, st.sampled_from(ODD), st.just(text[start:end] * 2)))
        text = text[:start] + draw(st.sampled_from(["", " "])) + middle + text[end:]
    return text


@st.composite
def reworded(draw: st.DrawFn, texts: list[str]) -> str:
    """Generate tokens of a corpus text with one or two of them replaced."""
    words = [token.text for token in tokenize(draw(st.sampled_from(texts))).tokens if token.text] or ["TICK"]
    start = draw(st.integers(0, len(words) - 1))
    words = words[start : start + draw(st.integers(1, 40))]
    for _ in range(draw(st.integers(0, 2))):
        words[draw(st.integers(0, len(words) - 1))] = draw(TOKENS)
    return " ".join(words)


@given(st.text())
def test_random_text_raises_only_typed_errors(text: str) -> None:
    read_all(text)


@given(st.binary(max_size=200))
def test_random_bytes_raise_only_typed_errors(data: bytes) -> None:
    read_all(data.decode("utf-8", "surrogateescape"))
    read_all(data.decode("latin-1"))


@given(st.lists(TOKENS, max_size=40).map(" ".join))
def test_random_tokens_raise_only_typed_errors(text: str) -> None:
    read_all(text)


@given(damaged(SCRIPTS) | damaged(ONTOLOGIES))
def test_damaged_texts_raise_only_typed_errors(text: str) -> None:
    read_all(text)


@given(reworded([case.text for case in accepted_scripts()]))
def test_accepted_statements_fit_the_grammar(text: str) -> None:
    try:
        parse_script(text)
    except VedetteError:
        return
    assert GRAMMAR.accepts("Script", text)


@given(reworded([case.text for case in accepted_ontologies()]))
def test_accepted_ontologies_fit_the_grammar(text: str) -> None:
    try:
        parse_declarations(text)
    except VedetteError:
        return
    assert GRAMMAR.accepts("OntologyFile", text)


# Size

MEGABYTE = 1_048_576


@pytest.mark.parametrize(
    "text",
    [
        'MATCH () RETURN "' + "x" * (MEGABYTE - 100) + '"',
        "-- " + "x" * (MEGABYTE - 100),
        "/* " + "x" * (MEGABYTE - 100) + " */",
        " " * MEGABYTE,
        "MATCH " + "x" * (MEGABYTE - 100) + ": T RETURN 1",
    ],
)
def test_text_of_one_megabyte_is_accepted(text: str) -> None:
    parse_script(text)


@pytest.mark.parametrize(
    "text",
    ["x" * (MEGABYTE + 1), "(" * 10 * MEGABYTE, '"' * 2 * MEGABYTE, "\0" * 2 * MEGABYTE, "9" * 2 * MEGABYTE],
)
def test_values_above_the_limit_are_rejected(text: str) -> None:
    for read in READERS:
        with pytest.raises(ParseError, match="E1003"):
            read(text)
    assert extract_literals(text) is None


MARKS = "( ) [ { ] - \" \\ ' /* @ # $ 9 9. 1e \0 \ud800 ; a. é EXISTS( KILL5; 5x \ufeff".split()
WORDS = "NOT,-,a,MATCH,SPAWN,a OR,EXPLAIN,node A,[abstract,node A [abstract]\n,--- x\n,KILL 5;".split(",")


@pytest.mark.parametrize("piece", MARKS + [f"{word} " for word in WORDS], ids=ascii)
def test_text_after_the_expression_is_an_error(piece: str) -> None:
    text = piece * (MEGABYTE // 4 // len(piece))
    try_to(parse_script, text)
    try_to(parse_declarations, text)
    extract_literals(text)


# Time

GROWING: dict[str, tuple[Callable[[str], object], Callable[[int], str]]] = {
    "statements": (parse_script, lambda n: "SPAWN t: T { a = 1 };" * n),
    "a long list": (parse_script, lambda n: "MATCH () RETURN [" + "1, " * n * 4 + "1]"),
    "columns": (parse_script, lambda n: "MATCH t: T RETURN " + "t.a AS b, " * n + "t"),
    "elements": (parse_script, lambda n: "MATCH " + "t: T, e(t, u), " * n + "RETURN 1"),
    "a chain that is too long": (parse_script, lambda n: "MATCH () RETURN " + "a + " * n * 2 + "a"),
    "parentheses": (parse_script, lambda n: "MATCH () RETURN " + "(" * n * 8),
    "mistakes": (parse_script, lambda n: "KILL 5; TICK; " * n),
    "open brackets": (parse_script, lambda n: "MATCH t: T [ " * n),
    "options": (parse_script, lambda n: "WATCH t: T " + "[a: f(t) + 1, b: c] " * n + "RETURN t"),
    "quotes": (parse_script, lambda n: '"a\n' * n * 4),
    "digits": (parse_script, lambda n: "9" * n * 40),
    "comments": (parse_script, lambda n: "/* a */ -- b\n" * n * 2),
    "open comments": (parse_script, lambda n: "/* " * n * 8),
    "doc comments": (parse_declarations, lambda n: "--- a\n" * n * 2),
    "attributes": (parse_declarations, lambda n: "node A { " + "a: Int [required, >= 5] = 5 " * n + "}"),
    "nodes with modifiers": (parse_declarations, lambda n: "node A\n[abstract, sealed] node B\n" * n),
    "mistakes in declarations": (parse_declarations, lambda n: "node A { a } " * n),
    "lifted literals": (extract_literals, lambda n: 'SET t.a = "x" + 5 + 1.5 + 30s;' * n * 3),
    "lifted quotes": (extract_literals, lambda n: '"a\\' * n * 8),
    "lifted digits": (extract_literals, lambda n: "9a" * n * 8),
}


def cost(read: Callable[[str], object], text: str) -> float:
    """Return the CPU time of this thread in seconds, the minimum of a few runs."""
    least = float("inf")
    for _ in range(3):
        start = time.thread_time()
        with contextlib.suppress(VedetteError):
            read(text)
        least = min(least, time.thread_time() - start)
    return least


@pytest.mark.parametrize("name", GROWING)
def test_parsing_time_is_linear(name: str) -> None:
    """Four times the text costs about four times as much; quadratic would be sixteen times."""
    read, text = GROWING[name]

    def is_linear() -> bool:
        gc.collect()
        gc.disable()
        try:
            return cost(read, text(2_000)) < 10 * cost(read, text(500)) + 0.01
        finally:
            gc.enable()

    assert any(
        is_linear() for _ in range(5)
    )  # Load on the machine slows down some rounds; quadratic time would slow down all of them.
