"""Redact a statement for the log: remove its comments and replace every literal by `?`.

A literal may be a password, a name or an address, so logs hold redacted statements only.
"""

from __future__ import annotations

from vedette.errors import ParseError
from vedette.language.parser.lexer import LITERAL_KINDS, tokenize

__all__ = ["MAX_REDACTED_CHARACTERS", "redact_literals"]

MAX_REDACTED_CHARACTERS = 1_000
"""A longer text is cut, so that one statement cannot fill a log."""


def redact_literals(text: str) -> str:
    """Return the redacted text; empty for a text that the lexer rejects."""
    try:
        tokens = tokenize(text).tokens
    except ParseError:
        return ""
    parts: list[str] = []
    end = 0
    for token in tokens:
        if parts and token.start > end:
            parts.append(" ")
        parts.append("?" if token.kind in LITERAL_KINDS else text[token.start : token.end])
        end = token.end
    redacted = "".join(parts).strip()
    if len(redacted) <= MAX_REDACTED_CHARACTERS:
        return redacted
    return f"{redacted[: MAX_REDACTED_CHARACTERS - 1]}…"
