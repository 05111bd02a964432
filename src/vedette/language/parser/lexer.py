"""Split a text into tokens, with one regular expression in one pass (docs/reference/grammar.md#tokens).

A token is a name, a literal, `#id`, `$parameter` or punctuation. Every literal token (string, int, float, timestamp,
duration) has an index among the literals of the text. `template.py` finds the same literals in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from vedette.errors import InvalidStatement, ParseError, VedetteError, WatchError
from vedette.language.diagnostics import NO_SPAN, Diagnostic, DiagnosticCollector, Span
from vedette.language.parser.literals import (
    DURATION,
    END_OF_WORD,
    FLOAT_PATTERN,
    FORBIDDEN_CHARACTERS,
    INT_PATTERN,
    LITERAL_PARSERS,
    STRING_PATTERN,
    TIMESTAMP,
    parse_string,
)
from vedette.language.syntax.grammar import NAME_PATTERN
from vedette.values import Value

__all__ = [
    "DEFAULT_PARSER_LIMITS",
    "LITERAL_KINDS",
    "LexerResult",
    "ParserLimits",
    "Token",
    "parse_error",
    "tokenize",
]

LITERAL_KINDS = frozenset(LITERAL_PARSERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserLimits:
    """Bounds on a text. E1003 reports the first two, E1004 the third."""

    max_source_characters: int = 1_048_576
    max_tokens: int = 250_000
    max_depth: int = 200
    """Levels of nesting in the text and in the tree. Each operator of a chain `a OR b OR c` is a level of the tree."""
    max_diagnostics: int = 20
    """Errors after which the parser stops reading the text."""


DEFAULT_PARSER_LIMITS = ParserLimits()


class Token(NamedTuple):
    """A token. The parser compares `symbol`."""

    kind: str
    """name, string, int, float, timestamp, duration, id, param, end, or the punctuation itself."""
    symbol: str
    """A name in upper case, or the punctuation; empty for other tokens."""
    text: str
    value: Value
    """The value of a literal; the id of an `#id`, or its parameter's name; the name of a `$param`."""
    start: int
    end: int
    literal_index: int
    """Index among the literals of the text, from 0; -1 for other tokens."""

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)


class LexerResult(NamedTuple):
    tokens: tuple[Token, ...]
    """Four `end` tokens close the list, so that looking ahead needs no bounds check."""
    doc_comments: Mapping[int, str]
    """Doc comments, by the index of the token that follows."""
    literals: tuple[Value, ...]
    """The values of the literals, by index."""


_TOKEN: Final = re.compile(
    rf"""[ \t\r\n]*+(?:
      (?P<name>{NAME_PATTERN})
    | (?P<punctuation>[(){{}}\[\],;%|*]|::?|\.\.?|=>?|!=|<=?|>=?|\+\+?|\?\??|->|-(?!-)|/(?!\*))
    | (?P<string>{STRING_PATTERN})
    | (?P<duration>{DURATION})
    | (?P<float>{FLOAT_PATTERN})
    | (?P<bad_number>[0-9]++(?:\.[0-9]++)?+[A-Za-z_][A-Za-z0-9_]*+)
    | (?P<int>{INT_PATTERN})
    | (?P<timestamp>{TIMESTAMP})
    | (?P<id>[#](?:{NAME_PATTERN}|[0-9]++{END_OF_WORD}|{STRING_PATTERN}|\${NAME_PATTERN}))
    | (?P<param>\${NAME_PATTERN}(?:\?(?=\?\?)|\?(?!\?))?+)
    | (?P<end>\Z)
    | (?P<doc>---(?!-)[^\n]*+)
    | (?P<comment>--[^\n]*+|/\*[\s\S]*?\*/)
    | (?P<unclosed_comment>/\*[\s\S]*+)
    | (?P<unclosed_string>"[^\n]*+)
    | (?P<bad_timestamp>@[0-9A-Za-z_:.+-]*+)
    | (?P<bad_character>[\s\S])
    )""",
    re.VERBOSE,
)
_FORBIDDEN: Final = re.compile(f"[{FORBIDDEN_CHARACTERS}]")
_MALFORMED_TOKENS: Mapping[str, tuple[str, str]] = {
    "unclosed_comment": ("E1001", "this comment is not closed; end it with */"),
    "bad_number": ("E1002", "this is neither a number nor a duration such as 30s, 16ms, 7d or 1.5.seconds"),
    "unclosed_string": (
        "E1002",
        'this string is not closed on its line; end it with " and write a line break as \\n',
    ),
    "bad_timestamp": ("E1002", "this is not a timestamp; write it as @2026-01-31 or @2026-01-31T08:30:00Z"),
}
_CHARACTER_HINTS: Mapping[str, tuple[str, str]] = {
    "'": ("E1005", "write strings in double quotes"),
    "`": ("E1005", "names need no quotes"),
    "!": ("E1005", "write NOT, or != for unequal"),
    "&": ("E1005", "write AND"),
    "#": ("E1001", 'an id follows a #, as in #name, #"any text", #7 or #$parameter'),
    "$": ("E1001", "the name of a parameter follows a $, as in $title"),
}


def tokenize(text: str, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> LexerResult:
    """Split a text into tokens; raise one ParseError that carries every lexical error."""
    if len(text) > limits.max_source_characters:
        message = f"the text has {len(text):,} characters; the limit is {limits.max_source_characters:,}"
        raise parse_error([Diagnostic(code="E1003", message=message, span=NO_SPAN, source=text[:200])])
    collector = DiagnosticCollector(text, limits.max_diagnostics)
    _report_forbidden_characters(text, collector)
    collector.raise_first(parse_error)
    lexer = _Lexer(text, limits, collector)
    lexer.run()
    collector.raise_first(parse_error)
    last = len(text)
    lexer.tokens.extend([Token("end", "", "", None, last, last, -1)] * 4)
    return LexerResult(tuple(lexer.tokens), lexer.doc_comments, tuple(lexer.literals))


def parse_error(diagnostics: Sequence[Diagnostic]) -> VedetteError:
    """Build the error for these diagnostics. The code of the first one decides the class."""
    first = diagnostics[0]
    error_class: type[VedetteError] = ParseError
    if first.code.startswith("E11"):
        error_class = InvalidStatement
    elif first.code.startswith("E8"):
        error_class = WatchError
    fields = {"line": first.line, "column": first.column}
    return error_class(first.code, first.message, fields=fields, diagnostics=diagnostics)


class _Lexer:
    __slots__ = ("collector", "doc_comments", "limits", "literals", "text", "tokens")

    def __init__(self, text: str, limits: ParserLimits, collector: DiagnosticCollector) -> None:
        self.text = text
        self.limits = limits
        self.collector = collector
        self.tokens: list[Token] = []
        self.doc_comments: dict[int, str] = {}
        self.literals: list[Value] = []

    def run(self) -> None:
        text, tokens, most = self.text, self.tokens, self.limits.max_tokens
        begin = 1 if text.startswith("\ufeff") else 0
        # tuple.__new__ takes 128 ns a token, calling Token 263 ns.
        append, new = tokens.append, tuple.__new__
        for match in _TOKEN.finditer(text, begin):
            kind: str = match.lastgroup  # type: ignore[assignment]
            start, end = match.span(kind)
            piece = text[start:end]
            if kind == "name":
                append(new(Token, ("name", piece.upper(), piece, None, start, end, -1)))
            elif kind == "punctuation":
                append(new(Token, (piece, piece, piece, None, start, end, -1)))
            elif kind == "end":
                return
            elif kind != "comment":
                self.add_other(kind, piece, start, end)
                if self.collector.is_full:
                    return
            if len(tokens) > most:
                self.report("E1003", f"the text has more than {most:,} tokens", start, end)
                return

    def add_other(self, kind: str, piece: str, start: int, end: int) -> None:
        """Add a token that is neither a name nor punctuation, keep a doc comment, or report an error."""
        if kind in LITERAL_KINDS:
            self.add_literal(kind, piece, start, end)
        elif kind == "id":
            self.add_reference(piece, start, end)
        elif kind == "param":
            self.tokens.append(Token("param", "", piece, piece[1:].rstrip("?"), start, end, -1))
        elif kind == "doc":
            index, line = len(self.tokens), piece[3:].removeprefix(" ").rstrip()
            docs = self.doc_comments
            docs[index] = f"{docs[index]}\n{line}" if index in docs else line
        elif kind == "bad_character":
            code, advice = _CHARACTER_HINTS.get(
                piece, ("E1005", "it may be used only in strings and comments")
            )
            self.report(code, f"the character {_display(piece)} is not expected here: {advice}", start, end)
        else:
            self.report(*_MALFORMED_TOKENS[kind], start, end)

    def add_literal(self, kind: str, piece: str, start: int, end: int) -> None:
        try:
            value = LITERAL_PARSERS[kind](piece)
        except ValueError as error:
            self.report("E1002", str(error), start, end)
            return
        self.tokens.append(Token(kind, "", piece, value, start, end, len(self.literals)))
        self.literals.append(value)

    def add_reference(self, piece: str, start: int, end: int) -> None:
        name = piece[1:].removeprefix("$")
        if name[0] == '"':
            try:
                name = parse_string(name)
            except ValueError as error:
                self.report("E1002", str(error), start, end)
        self.tokens.append(Token("id", "", piece, name, start, end, -1))

    def report(self, code: str, message: str, start: int, end: int) -> None:
        self.collector.report(code, message, Span(start, end))


def _report_forbidden_characters(text: str, collector: DiagnosticCollector) -> None:
    for match in _FORBIDDEN.finditer(text):
        message = (
            f"the character {_display(match[0])} is not allowed in a text; in a string, write it as an escape"
        )
        collector.report("E1005", message, Span(*match.span()))
        if collector.is_full:
            return


def _display(character: str) -> str:
    return character if character.isprintable() else f"U+{ord(character):04X}"
