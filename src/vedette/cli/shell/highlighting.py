"""Colours for the language while it is typed: words, literals and comments, right or wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.lexers import Lexer

from vedette.language.parser.literals import DURATION, FLOAT, INT, NAME, STRING, TIMESTAMP
from vedette.language.syntax.expressions import AGGREGATES
from vedette.language.syntax.grammar import DECLARATION_WORDS, RESERVED_WORDS

__all__ = ["STYLES", "MewLexer", "pieces"]

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
KEYWORDS = RESERVED_WORDS | AGGREGATES | frozenset("BY ASC DESC IF CONTAINS STARTS ENDS WITH CASCADE".split())

_PIECE: Final = re.compile(
    rf"""(?P<comment>--[^\n]*|/\*[\s\S]*?(?:\*/|\Z))
    | (?P<string>{STRING})
    | (?P<wrong>"[^\n]*)
    | (?P<number>{TIMESTAMP}|{DURATION}|{FLOAT}|{INT})
    | (?P<reference>[#](?:{STRING}|[$]?{NAME}|[0-9]+)|[$]{NAME})
    | (?P<type>(?<=:[ ]){NAME}|(?<=:){NAME})
    | (?P<name>{NAME})""",
    re.VERBOSE,
)


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """The text cut into pieces, each with the class of its style; nothing is lost."""
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
    return "class:declaration" if word in DECLARATION_WORDS else ""


class MewLexer(Lexer):
    """The pieces by line, as prompt_toolkit wants them."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = list(split_lines(list(pieces(document.text))))
        return lambda number: list(lines[number]) if number < len(lines) else []
