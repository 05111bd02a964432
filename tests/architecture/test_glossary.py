"""The words in the column "not" of docs/glossary.md are not used in src, neither as a name nor in prose."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.architecture.modules import ROOT, Module, source_modules

GLOSSARY = ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| (?P<term>[^|]+) \| (?P<definition>[^|]+) \| ?(?P<avoid>[^|]*) ?\|$")


def rows() -> list[re.Match[str]]:
    found = [ROW.match(line) for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    assert all(found), "a row has three columns: term, definition, not"
    return [row for row in found if row and row["term"] not in {"term", "---"}]


def avoided_words() -> list[str]:
    return [word.strip() for row in rows() for word in row["avoid"].split(",") if word.strip()]


def names_of(module: Module) -> Iterator[tuple[int, str]]:
    """(line, name) of every definition, assignment, parameter and attribute that is set."""
    yield 1, module.name
    for node in ast.walk(module.tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.arg():
                yield node.lineno, node.arg


def prose_of(module: Module) -> Iterator[tuple[int, str]]:
    """(line, text) of every comment, docstring and other text."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def words_of(name: str) -> str:
    """`HandOut` and `hand_out` are "hand out"."""
    return " ".join(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)).lower()


def findings(module: Module, avoided: re.Pattern[str]) -> list[str]:
    places = [(line, words_of(name)) for line, name in names_of(module)]
    places += list(prose_of(module))
    return [module.at(line, f"says {found[0]!r}") for line, text in places if (found := avoided.search(text))]


def pattern(words: list[str]) -> re.Pattern[str]:
    forms = [
        re.sub(r"[ -]", "[ -]", re.escape(word).replace(r"\ ", " ").replace(r"\-", "-")) for word in words
    ]
    return re.compile(r"\b(?:" + "|".join(forms) + r")\b", re.IGNORECASE)


def test_source_uses_the_words_of_the_glossary() -> None:
    avoided = pattern(avoided_words())
    found = [finding for module in source_modules() for finding in findings(module, avoided)]
    assert not found, "\n".join(["docs/glossary.md has the word to use instead:", *found])


def test_terms_are_defined_once() -> None:
    terms = [term.strip() for row in rows() for term in row["term"].split(",")]
    repeated = {term for term in terms if terms.count(term) > 1}
    assert not repeated


@pytest.mark.parametrize(
    "text",
    [
        "class HandOut: ...",
        "def f(hand_out): ...",
        "x = 1  # the hand-out",
        '"""A hand-out."""',
        "self.hand_out = 1",
    ],
)
def test_an_avoided_word_is_found(text: str) -> None:
    assert findings(Module(path="a.py", text=text), pattern(["hand-out"]))
