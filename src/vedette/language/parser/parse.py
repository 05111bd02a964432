"""From a text to its trees: what the rest of Vedette calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from vedette.errors import InvalidStatement
from vedette.language.diagnostics import Diagnostic
from vedette.language.parser.declarations import DeclarationParser
from vedette.language.parser.lexer import DEFAULT_PARSER_LIMITS, ParserLimits
from vedette.language.parser.recovery import ErrorRecovery
from vedette.language.parser.statements import StatementParser
from vedette.language.syntax.declarations import Declaration
from vedette.language.syntax.expressions import Expression
from vedette.language.syntax.statements import Statement, WatchOption
from vedette.values import Value

__all__ = [
    "ParsedTemplate",
    "parse_declarations",
    "parse_expression",
    "parse_script",
    "parse_statement",
    "parse_template",
    "parse_watch_options",
]

Tree = TypeVar("Tree")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTemplate:
    """Statements whose constants may be exchanged, all but the pinned ones, without parsing again."""

    statements: tuple[Statement, ...]
    inlined_literals: frozenset[int]
    """Ordinals of literals whose values are in the tree as plain numbers: depths, COLLECT's limit, -2**63."""
    literals: tuple[Value, ...]
    """Every literal of the text by its ordinal; each is pinned or is the Literal of that slot."""


def parse_script(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> tuple[Statement, ...]:
    """All statements of a text. Raises ParseError with every mistake, or InvalidStatement for what is left out."""
    return StatementParser(text, limits).script()


def parse_statement(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> Statement:
    """The one statement of a text; InvalidStatement E1101 when there is none or there are several."""
    statements = parse_script(text, limits=limits)
    if len(statements) == 1:
        return statements[0]
    message = f"expected exactly one statement, found {len(statements)}"
    if not statements:
        raise InvalidStatement("E1101", f"{message}; the text is empty")
    advice = f"{message}; run() takes a script of several"
    diagnostic = Diagnostic(code="E1101", message=advice, span=statements[1].span, source=text)
    raise InvalidStatement("E1101", advice, fields={"count": len(statements)}, diagnostics=[diagnostic])


def parse_template(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> ParsedTemplate:
    """Like parse_script, with what the cache of plans needs to know about the literals."""
    parser = StatementParser(text, limits)
    statements = parser.script()
    return ParsedTemplate(
        statements=statements, inlined_literals=frozenset(parser.inlined_literals), literals=parser.literals
    )


def parse_declarations(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> tuple[Declaration, ...]:
    """All declarations of an ontology. Raises ParseError with every mistake."""
    return DeclarationParser(text, limits).ontology_file()


def parse_expression(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> Expression:
    parser = StatementParser(text, limits)
    return _whole(parser, parser.expression)


def parse_watch_options(
    text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS
) -> tuple[WatchOption, ...]:
    """`[buffer: 10]`, for altering a watch by its handle."""
    parser = StatementParser(text, limits)
    return _whole(parser, parser.options)


def _whole(parser: StatementParser, read: Callable[[], Tree]) -> Tree:
    """Read one thing and nothing behind it."""

    def read_to_end() -> Tree:
        tree = read()
        if parser.token.kind != "end":
            parser.fail_expected("the end of the text")
        return tree

    recovery = ErrorRecovery(parser, frozenset())
    tree = recovery.parse_or_skip(read_to_end)
    recovery.finish()
    assert tree is not None
    return tree
