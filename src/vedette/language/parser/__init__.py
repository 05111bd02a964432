"""The parser: a hand-written recursive descent over the lexer's tokens (docs/reference/grammar.md)."""

from vedette.language.parser.parse import (
    LiftedParse,
    parse_declarations,
    parse_expression,
    parse_lifted,
    parse_script,
    parse_statement,
    parse_watch_options,
)

__all__ = [
    "LiftedParse",
    "parse_declarations",
    "parse_expression",
    "parse_lifted",
    "parse_script",
    "parse_statement",
    "parse_watch_options",
]
