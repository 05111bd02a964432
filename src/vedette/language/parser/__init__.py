"""The parser: recursive descent over the tokens of a text (docs/reference/grammar.md)."""

from vedette.language.parser.parse import (
    ParsedTemplate,
    parse_declarations,
    parse_expression,
    parse_script,
    parse_statement,
    parse_template,
    parse_watch_options,
)

__all__ = [
    "ParsedTemplate",
    "parse_declarations",
    "parse_expression",
    "parse_script",
    "parse_statement",
    "parse_template",
    "parse_watch_options",
]
