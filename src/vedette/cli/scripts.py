"""Texts as people write them: declarations and statements in one file, or one after the other at a prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from vedette.errors import VedetteError
from vedette.language.diagnostics import Diagnostic, Span
from vedette.language.parser.declarations import DeclarationParser
from vedette.language.parser.lexer import DEFAULT_PARSER_LIMITS, ParserLimits
from vedette.language.parser.recovery import ErrorRecovery
from vedette.language.parser.statements import StatementParser
from vedette.language.syntax.declarations import Declaration
from vedette.language.syntax.grammar import DECLARATION_KEYWORDS, STATEMENT_KEYWORDS
from vedette.language.syntax.statements import Statement

__all__ = [
    "Completeness",
    "DeclarationPart",
    "Part",
    "StatementPart",
    "check_completeness",
    "read_script",
    "relocate",
]

_WORDS = STATEMENT_KEYWORDS | DECLARATION_KEYWORDS
_NODE_MODIFIERS = frozenset({"ABSTRACT", "SEALED", "SINGLETON", "EXTENSION"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclarationPart:
    """Declarations that stand together, doc comments included: they may refer to each other, so they go as one."""

    text: str
    start: int
    """Where in the whole text it begins, in characters."""
    first_token_offset: int
    """Where its first word stands, behind all comments."""
    trees: tuple[Declaration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementPart:
    text: str
    start: int
    tree: Statement

    @property
    def first_token_offset(self) -> int:
        return self.start


Part: TypeAlias = DeclarationPart | StatementPart
Completeness: TypeAlias = Literal["whole", "open", "wrong"]


def read_script(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> tuple[Part, ...]:
    """The parts of a text in order. Raises with every mistake of the whole text, before anything is run."""
    return tuple(_Reader(text, limits).parts())


def check_completeness(text: str) -> Completeness:
    """`whole`; `open`: it ends where more is expected, so more text could still make it right; or `wrong`."""
    try:
        read_script(text)
    except VedetteError as error:
        first = error.diagnostics[0] if error.diagnostics else None
        if not isinstance(first, Diagnostic):
            return "wrong"
        unclosed_comment = text.startswith("/*", first.span.start) and first.span.end == len(text)
        return "open" if first.span.start == len(text) or unclosed_comment else "wrong"
    return "whole"


def relocate(error: VedetteError, part: Part, source: str) -> VedetteError:
    """Make the places that an error of a part points to places in the whole text."""
    moved = [_moved(d, part, source) if isinstance(d, Diagnostic) else d for d in error.diagnostics]
    error.diagnostics = tuple(moved)
    if moved and isinstance(moved[0], Diagnostic) and "line" in error.fields:
        error.fields.update(line=moved[0].line, column=moved[0].column)
    return error


def _moved(diagnostic: Diagnostic, part: Part, source: str) -> Diagnostic:
    if diagnostic.source != part.text:
        return diagnostic  # it points into a text that was defined before
    span = Span(diagnostic.span.start + part.start, diagnostic.span.end + part.start)
    return replace(diagnostic, span=span, source=source)


class _Reader:
    """Both parsers over the same tokens: whichever the next word belongs to goes on from where the other stopped."""

    def __init__(self, text: str, limits: ParserLimits) -> None:
        self.text = text
        self.statements = StatementParser(text, limits)
        self.declarations = DeclarationParser(text, limits)
        self.tokens = self.statements.tokens
        self.statement_recovery = ErrorRecovery(self.statements, _WORDS)
        self.declaration_recovery = ErrorRecovery(self.declarations, _WORDS)
        self.declaration_recovery.diagnostics = self.statement_recovery.diagnostics
        self.index = 0

    def parts(self) -> Iterator[Part]:
        found: list[Part] = []
        while self.tokens[self.index].kind != "end":
            if self.tokens[self.index].symbol == ";":
                self.index += 1
            elif self.at_declaration():
                found.append(self.read_declarations())
            else:
                found.extend(self.read_statement())
        self.statement_recovery.finish()
        return iter(found)

    def at_declaration(self) -> bool:
        """At what starts a declaration. But `node = WATCH …` names a watch, and `[buffer: 1]` is no modifier."""
        word, following = (token.symbol for token in self.tokens[self.index : self.index + 2])
        return (
            following in _NODE_MODIFIERS if word == "[" else word in DECLARATION_KEYWORDS and following != "="
        )

    def read_declarations(self) -> DeclarationPart:
        start = self.tokens[self.index - 1].end if self.index else 0
        first = self.tokens[self.index].start
        parser, trees = self.declarations, list[Declaration]()
        parser.seek(self.index)
        end = start
        while self.at_declaration():
            read = parser.ontology if parser.token.symbol == "ONTOLOGY" else parser.declaration
            tree: Declaration | None = self.declaration_recovery.parse_or_skip(read)
            trees.extend([tree] if tree is not None else [])
            end = self.tokens[parser.index - 1].end
            while parser.token.symbol == ";":
                parser.advance()
            self.index = parser.index
        return DeclarationPart(
            text=self.text[start:end], start=start, first_token_offset=first, trees=tuple(trees)
        )

    def read_statement(self) -> Iterator[StatementPart]:
        parser, start = self.statements, self.tokens[self.index].start
        parser.seek(self.index)
        tree = self.statement_recovery.parse_or_skip(parser.statement)
        self.index = parser.index
        if tree is not None:
            end = self.tokens[self.index - 1].end
            yield StatementPart(text=self.text[start:end], start=start, tree=tree)
