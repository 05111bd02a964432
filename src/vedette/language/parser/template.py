"""Split a text into its skeleton and its literals, without parsing it.

Texts that differ only in constants have one skeleton, so that a cache keyed by it answers them with one parse and one
plan. The literals are those of the lexer, in the same order: both are built from the fragments in `literals.py`.

    WATCH t: Task WHERE t.n > 5 [ack_timeout: 30s]  ▸  ("WATCH … > ", "i", " [ack_timeout: ", "d", "]"),  (5, 30 s)

Pieces of the text and tags of the literals' types alternate in the key, so a piece can never pass for a literal.
A literal that the parser pins (`ParsedTemplate.pinned`) must be part of whatever the caller caches under the skeleton.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from vedette.language.parser.lexer import DEFAULT_PARSER_LIMITS
from vedette.language.parser.literals import (
    DURATION,
    FLOAT_PATTERN,
    INT_PATTERN,
    STRING_PATTERN,
    TIMESTAMP,
    parse_duration,
    parse_float,
    parse_int,
    parse_string,
    parse_timestamp,
)
from vedette.values import INT_MAX, Value

__all__ = ["StatementTemplate", "extract_literals"]


class StatementTemplate(NamedTuple):
    key: tuple[str, ...]
    """Pieces of the text at even places, tags of literals at odd ones."""
    literals: tuple[Value, ...]


# Every literal starts with a quote, an @ or a digit: the first set lets the engine skip to the next candidate.
# A digit that belongs to a name, an #id or a $parameter is passed over by looking one character further back.
# A quote that opens no string takes all the rest: otherwise each of many would search to the end of the text.
_LITERAL: Final = re.compile(
    rf"""((?=["@0-9])(?:{STRING_PATTERN}|(?<![A-Za-z0-9_#$])(?:{DURATION}|{FLOAT_PATTERN}|{INT_PATTERN})|{TIMESTAMP}|"[\s\S]*+))"""
)
_STRING: Final = re.compile(STRING_PATTERN)


def extract_literals(text: str) -> StatementTemplate | None:
    """The skeleton and the literals of a text, or None when only the lexer can tell them apart."""
    if len(text) > DEFAULT_PARSER_LIMITS.max_source_characters:
        return None
    pieces = _LITERAL.split(text)
    if ("--" in text or "/*" in text or '#"' in text) and not _is_plain(pieces):
        return None
    if len(pieces) > 1 and pieces[-2][0] == '"' and not pieces[-1] and not _STRING.fullmatch(pieces[-2]):
        return None
    literals: list[Value] = []
    try:
        for index in range(1, len(pieces), 2):
            piece = pieces[index]
            first = piece[0]
            if first == '"':
                pieces[index] = "s"
                literals.append(piece[1:-1] if "\\" not in piece else parse_string(piece))
            elif piece.isdigit() and len(piece) < 19:
                pieces[index] = "i"
                literals.append(int(piece))
            else:
                pieces[index], value = _other(piece)
                literals.append(value)
    except ValueError:
        return None
    return StatementTemplate(tuple(pieces), tuple(literals))


def _is_plain(pieces: list[str]) -> bool:
    """No comments, and no quoted ids, whose strings are no literals."""
    return not any("--" in piece or "/*" in piece or piece.endswith("#") for piece in pieces[::2])


def _other(piece: str) -> tuple[str, Value]:
    """The tag and the value of what is no string and no short number."""
    if piece[0] == "@":
        return "t", parse_timestamp(piece)
    if piece.isdigit():
        number = parse_int(piece)
        if number > INT_MAX:
            raise ValueError
        return "i", number
    if piece[-1].isalpha():
        return "d", parse_duration(piece)
    return "f", parse_float(piece)
