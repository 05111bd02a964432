"""The entry points of the parser."""

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
    """The statements of a template (`parser/template.py`).

    Another text of the same template needs no parsing: its statements differ only in the values of literals that are
    not inlined.
    """

    statements: tuple[Statement, ...]
    inlined_literals: frozenset[int]
    """Indexes of literals whose values are part of the tree: path depths, COLLECT's limit, -2**63."""
    literals: tuple[Value, ...]
    """All literals of the text by index. Each is inlined, or there is a Literal node with its index."""


def parse_script(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> tuple[Statement, ...]:
    """Return the statements of a text.

    Raises one error with every diagnostic: ParseError, or InvalidStatement for syntax that is not supported.
    """
    return StatementParser(text, limits).parse_script()


def parse_statement(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> Statement:
    """Return the statement of a text; raises InvalidStatement E1101 unless there is exactly one."""
    statements = parse_script(text, limits=limits)
    if len(statements) == 1:
        return statements[0]
    message = f"expected exactly one statement, found {len(statements)}"
    if not statements:
        raise InvalidStatement("E1101", f"{message}; the text is empty")
    advice = f"{message}; use run() for a script of several statements"
    diagnostic = Diagnostic(code="E1101", message=advice, span=statements[1].span, source=text)
    raise InvalidStatement("E1101", advice, fields={"count": len(statements)}, diagnostics=[diagnostic])


def parse_template(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> ParsedTemplate:
    """Parse a script and also return what the statement cache needs to know about its literals."""
    parser = StatementParser(text, limits)
    statements = parser.parse_script()
    return ParsedTemplate(
        statements=statements, inlined_literals=frozenset(parser.inlined_literals), literals=parser.literals
    )


def parse_declarations(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> tuple[Declaration, ...]:
    """Return the declarations of an ontology; raises one ParseError with every diagnostic."""
    return DeclarationParser(text, limits).parse_ontology_file()


def parse_expression(text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> Expression:
    parser = StatementParser(text, limits)
    return _parse_whole_text(parser, parser.parse_expression)


def parse_watch_options(
    text: str, *, limits: ParserLimits = DEFAULT_PARSER_LIMITS
) -> tuple[WatchOption, ...]:
    """Return the options of a text such as `[buffer: 10]`; `w.alter()` takes it."""
    parser = StatementParser(text, limits)
    return _parse_whole_text(parser, parser.parse_options)


def _parse_whole_text(parser: StatementParser, parse: Callable[[], Tree]) -> Tree:
    """Parse one tree that must reach to the end of the text."""

    def parse_to_end() -> Tree:
        tree = parse()
        if parser.token.kind != "end":
            parser.fail_expected("the end of the text")
        return tree

    recovery = ErrorRecovery(parser, frozenset())
    tree = recovery.parse_or_skip(parse_to_end)
    recovery.finish()
    assert tree is not None
    return tree
