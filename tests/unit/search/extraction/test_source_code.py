"""The sections of Python files: equal to those that `ast` finds, for any text, in linear time."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.search.document import Section
from vedette.search.extraction.source_code import python_sections

LIBRARY = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[::2]


def parsed(text: str) -> list[Section]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(definitions(ast.parse(text).body, ""), key=lambda part: part.start)


def definitions(body: list[ast.stmt], owner: str) -> Iterator[Section]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            word = "class" if isinstance(node, ast.ClassDef) else "def"
            yield Section(start=first - 1, title=f"{word} {owner}{node.name}")
            if isinstance(node, ast.ClassDef):
                yield from definitions(node.body, f"{owner}{node.name}.")


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.name)
def test_sections_of_the_standard_library_equal_those_of_ast(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    assert list(python_sections(text)) == parsed(text)


ODD = {
    "code in strings": "x = \"\"\"\ndef no(): ...\n\"\"\"\ndef yes():\n    r'''\nclass No:\n'''\n",
    "quotes in strings": "a = '\"\"\"'\ndef yes(): ...\nb = \"'''\"\nclass Yes: ...\n",
    "quotes in comments": "# it's \"\"\" here\ndef yes(): ...\n# '''\nclass Yes: ...\n",
    "escapes": 'a = """\\"""\ndef no(): ...\n"""\ndef yes(): ...\nb = "\\\\"\nclass Yes: ...\n',
    "branches": "class A: ...\nif x:\n    def no(): ...\nelse:\n    class No: ...\ndef yes(): ...\n",
    "nested functions": "def f():\n    def no(): ...\n    class No:\n        def no(self): ...\ndef g(): ...\n",
    "branches in classes": "class A:\n    if x:\n        def no(): ...\n    def yes(self): ...\n",
    "a decorator of many lines": "@a(\n    [x for x in y\n     if x],\n)\n@b\n\n# why\ndef f(): ...\nx = a @ b\n",
    "more decorators": "class A:\n    @a\n    def m():\n        @b\n        def no(): ...\n    @c\n    class B: ...\n",
    "tabs": "class A:\n\tdef m(self): ...\n\tclass B:\n\t\tdef n(self): ...\n",
    "a continued line": "x = 1 + \\\n    2\ndef f(a,\n      b): ...\n",
    "words that begin alike": "define = 1\nclassic = 2\ndefault = 3\ndef f(): ...\nmatch = 4\ncase = 5\ndef g(): ...\n",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_sections_of_unusual_python_equal_those_of_ast(text: str) -> None:
    assert list(python_sections(text)) == parsed(text)


@given(st.text(st.sampled_from(list("\"'\\#\n @adefclss:(")), max_size=200))
def test_sections_of_any_text_are_ordered_and_inside_it(text: str) -> None:
    starts = [part.start for part in python_sections(text)]
    assert all(0 <= start <= text.count("\n") for start in starts)


@pytest.mark.parametrize("piece", ['\\"""', "'''\\", '"\\\n', "'", "\"\"\"\n'''", "@\n", " ", "def f(\n "])
def test_time_is_linear_in_the_length_of_the_text(piece: str) -> None:
    """With quadratic time, one of these texts would take hours."""
    assert len(list(python_sections(piece * 300_000))) >= 0
