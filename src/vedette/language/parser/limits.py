"""Bounds that keep a hostile text from costing more than an error."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_PARSER_LIMITS", "ParserLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserLimits:
    """What a text may cost. Beyond the first two it is E1003, beyond the third E1004."""

    max_source_characters: int = 1_048_576
    max_tokens: int = 250_000
    max_depth: int = 200
    """Levels of nesting, of the text and of the tree: each operator of a chain `a OR b OR c` is one level too."""
    max_diagnostics: int = 20
    """Mistakes collected before the parser gives up on a text."""


DEFAULT_PARSER_LIMITS = ParserLimits()
