"""Source files that mix declarations and statements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from vedette.language.parser.declarations import DeclarationParser
from vedette.language.parser.lexer import DEFAULT_PARSER_LIMITS, ParserLimits
from vedette.language.parser.recovery import ErrorRecovery
from vedette.language.parser.statements import StatementParser
from vedette.language.syntax.declarations import Declaration
from vedette.language.syntax.grammar import DECLARATION_KEYWORDS, STATEMENT_KEYWORDS
from vedette.language.syntax.statements import Statement

__all__ = ["DeclarationPart", "SourcePart", "StatementPart", "parse_source_file"]

_START_KEYWORDS = STATEMENT_KEYWORDS | DECLARATION_KEYWORDS
_NODE_MODIFIERS = frozenset({"ABSTRACT", "SEALED", "SINGLETON", "EXTENSION"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclarationPart:
    """Consecutive declarations with their doc comments. They may refer to each other, so they are defined together."""

    text: str
    start: int
    """Character offset of `text` in the file."""
    first_token_offset: int
    """Character offset of the first token in the file, after any comments."""
    trees: tuple[Declaration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementPart:
    text: str
    start: int
    """Character offset of `text` in the file."""
    tree: Statement

    @property
    def first_token_offset(self) -> int:
        return self.start


SourcePart: TypeAlias = DeclarationPart | StatementPart


def parse_source_file(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> tuple[SourcePart, ...]:
    """Return the parts of a file in order; raise one error that carries every syntax error of the file."""
    return _SourceFileParser(text, limits).parse()


class _SourceFileParser:
    """Runs a statement parser and a declaration parser over the same tokens.

    The next keyword decides which of the two continues. Both report to one collector.
    """

    def __init__(self, text: str, limits: ParserLimits) -> None:
        self.text = text
        self.statements = StatementParser(text, limits)
        self.declarations = DeclarationParser(text, limits)
        self.tokens = self.statements.tokens
        self.statement_recovery = ErrorRecovery(self.statements, _START_KEYWORDS)
        self.declaration_recovery = ErrorRecovery(
            self.declarations, _START_KEYWORDS, self.statement_recovery.collector
        )
        self.index = 0

    def parse(self) -> tuple[SourcePart, ...]:
        found: list[SourcePart] = []
        while self.tokens[self.index].kind != "end":
            if self.tokens[self.index].symbol == ";":
                self.index += 1
            elif self.at_declaration():
                found.append(self.parse_declarations())
            else:
                found.extend(self.parse_statement())
        self.statement_recovery.finish()
        return tuple(found)

    def at_declaration(self) -> bool:
        """True at the start of a declaration. `node = WATCH …` names a watch; `[buffer: 1]` is an option list."""
        word, following = (token.symbol for token in self.tokens[self.index : self.index + 2])
        return (
            following in _NODE_MODIFIERS if word == "[" else word in DECLARATION_KEYWORDS and following != "="
        )

    def parse_declarations(self) -> DeclarationPart:
        start = self.tokens[self.index - 1].end if self.index else 0
        first = self.tokens[self.index].start
        parser, trees = self.declarations, list[Declaration]()
        parser.seek(self.index)
        end = start
        while self.at_declaration():
            tree = self.declaration_recovery.parse_or_skip(parser.parse_declaration_or_ontology)
            if tree is not None:
                trees.append(tree)
            end = self.tokens[parser.index - 1].end
            while parser.token.symbol == ";":
                parser.advance()
            self.index = parser.index
        return DeclarationPart(
            text=self.text[start:end], start=start, first_token_offset=first, trees=tuple(trees)
        )

    def parse_statement(self) -> Iterator[StatementPart]:
        parser, start = self.statements, self.tokens[self.index].start
        parser.seek(self.index)
        tree = self.statement_recovery.parse_or_skip(parser.parse_statement)
        self.index = parser.index
        if tree is not None:
            end = self.tokens[self.index - 1].end
            yield StatementPart(text=self.text[start:end], start=start, tree=tree)
