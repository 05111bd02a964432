"""Syntax highlighting while a statement is typed, also of invalid text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.lexers import Lexer

from vedette.language.parser.literals import DURATION, FLOAT_PATTERN, INT_PATTERN, STRING_PATTERN, TIMESTAMP
from vedette.language.syntax.expressions import AGGREGATE_FUNCTIONS
from vedette.language.syntax.grammar import DECLARATION_KEYWORDS, NAME_PATTERN, RESERVED_KEYWORDS

__all__ = ["STYLES", "MewLexer", "highlight"]

STYLES: Final = {
    "keyword": "bold ansiblue",
    "declaration": "bold ansimagenta",
    "type": "ansicyan",
    "string": "ansigreen",
    "number": "ansiyellow",
    "reference": "ansimagenta",
    "comment": "ansibrightblack",
    "wrong": "ansired",
    "prompt": "bold",
}
KEYWORDS = (
    RESERVED_KEYWORDS
    | AGGREGATE_FUNCTIONS
    | frozenset("BY ASC DESC IF CONTAINS STARTS ENDS WITH CASCADE".split())
)

_PIECE: Final = re.compile(
    rf"""(?P<comment>--[^\n]*|/\*[\s\S]*?(?:\*/|\Z))
    | (?P<string>{STRING_PATTERN})
    | (?P<wrong>"[^\n]*)
    | (?P<number>{TIMESTAMP}|{DURATION}|{FLOAT_PATTERN}|{INT_PATTERN})
    | (?P<reference>[#](?:{STRING_PATTERN}|[$]?{NAME_PATTERN}|[0-9]+)|[$]{NAME_PATTERN})
    | (?P<type>(?<=:[ ]){NAME_PATTERN}|(?<=:){NAME_PATTERN})
    | (?P<name>{NAME_PATTERN})""",
    re.VERBOSE,
)


def highlight(text: str) -> Iterator[tuple[str, str]]:
    """Split the text into (style class, text) pairs."""
    end = 0
    for found in _PIECE.finditer(text):
        if found.start() > end:
            yield "", text[end : found.start()]
        yield _style(found.lastgroup or "", found[0]), found[0]
        end = found.end()
    if end < len(text):
        yield "", text[end:]


def _style(kind: str, piece: str) -> str:
    if kind != "name":
        return f"class:{kind}"
    word = piece.upper()
    if word in KEYWORDS:
        return "class:keyword"
    return "class:declaration" if word in DECLARATION_KEYWORDS else ""


class MewLexer(Lexer):
    """Highlights the language for prompt_toolkit."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = list(split_lines(list(highlight(document.text))))
        return lambda number: list(lines[number]) if number < len(lines) else []
