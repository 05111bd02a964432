"""Split CEL text into tokens; raises E1201 at the first character that is not part of a token."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from vedette.filters.limits import filter_error
from vedette.language.diagnostics import Span
from vedette.values import INT_MAX, Value

__all__ = ["Token", "tokenize"]


class Token(NamedTuple):
    """`kind` is `name`, `number`, `string`, `operator` or `end`; `value` is the value of a literal."""

    kind: str
    text: str
    span: Span
    value: Value = None


_TOKEN = re.compile(
    r"""
    (?P<space> [ \t\r\n\f]+ | //[^\n]* )
  | (?P<bytes> (?: [bB][rR]? | [rR][bB] ) ['"] )
  | (?P<raw> [rR] (?: '{3}[\s\S]*?'{3} | "{3}[\s\S]*?"{3} | (?!'{3}|"{3}) (?: '[^'\r\n]*' | "[^"\r\n]*" ) ) )
  | (?P<string> '{3}(?:[^\\]|\\[\s\S])*?'{3} | "{3}(?:[^\\]|\\[\s\S])*?"{3}
              | (?!'{3}|"{3}) (?: '(?:[^'\\\r\n]|\\.)*' | "(?:[^"\\\r\n]|\\.)*" ) )
  | (?P<float> (?: [0-9]+ (?: \.[0-9]+ (?:[eE][+-]?[0-9]+)? | [eE][+-]?[0-9]+ ) | \.[0-9]+ (?:[eE][+-]?[0-9]+)? ) )
  | (?P<hex> 0[xX][0-9a-fA-F]+[uU]? )
  | (?P<int> [0-9]+[uU]? )
  | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
  | (?P<operator> && | \|\| | == | != | <= | >= | [-+*/%!<>?:.,()\[\]{}] )
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"""\\(?: (?P<plain>[abfnrtv\\?"'`]) | [xX](?P<hex>[0-9a-fA-F]{2}) | (?P<octal>[0-3][0-7]{2})
            | u(?P<short>[0-9a-fA-F]{4}) | U(?P<long>[0-9a-fA-F]{8}) | (?P<bad>[\s\S]) )""",
    re.VERBOSE,
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_STRAY = {
    "=": "equality is written ==",
    "&": "and is written &&",
    "|": "or is written ||",
    "'": "this string is not closed",
    '"': "this string is not closed",
    "`": "a field with such a name is written doc['name']",
}
_MAX_INT_DIGITS = 20
"""A longer number cannot fit into 64 bits and is not converted."""


def tokenize(source: str) -> list[Token]:
    """Return the tokens; the last has the kind `end`. 2**63 is accepted, because it is valid after a minus sign."""
    return [*_tokens(source), Token("end", "", Span(len(source), len(source)))]


def _tokens(source: str) -> Iterator[Token]:
    position = 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            sign = source[position]
            message = _STRAY.get(sign, f"the character {sign!a} has no meaning here")
            raise filter_error("E1201", message, source, Span(position, position + 1))
        start, position = found.span()
        if found.lastgroup != "space":
            yield _token(found, source, Span(start, position))


def _token(found: re.Match[str], source: str, span: Span) -> Token:
    text = found.group()
    match found.lastgroup:
        case "bytes":
            raise filter_error("E1201", "bytes are not part of the filter language", source, span)
        case "raw":
            quotes = 3 if text[1:4] in ("'''", '"""') else 1
            return Token("string", text, span, text[1 + quotes : -quotes])
        case "string":
            quotes = 3 if text[:3] in ("'''", '"""') else 1
            return Token("string", text, span, _unescape(text[quotes:-quotes], source, span.start + quotes))
        case "float" | "hex" | "int" as kind:
            _refuse_tail(source, span)
            return Token("number", text, span, _number(kind, text, source, span))
        case kind:
            return Token(str(kind), text, span)


def _refuse_tail(source: str, span: Span) -> None:
    tail = source[span.end : span.end + 1]
    if tail.isalnum() or tail == "_":
        raise filter_error(
            "E1201",
            "a letter or digit follows the number",
            source,
            Span(span.start, span.end + 1),
        )


def _number(kind: str, text: str, source: str, span: Span) -> int | float:
    if kind == "float":
        number = float(text)
        if math.isinf(number):
            raise filter_error("E1201", "this number is too large for a double", source, span)
        return number
    digits = (text[2:] if kind == "hex" else text).rstrip("uU").lstrip("0") or "0"
    value = INT_MAX + 2 if len(digits) > _MAX_INT_DIGITS else int(digits, 16 if kind == "hex" else 10)
    if value > INT_MAX + 1:
        raise filter_error("E1201", "this integer does not fit into 64 bits", source, span)
    return value


def _unescape(text: str, source: str, start: int) -> str:
    def replace(found: re.Match[str]) -> str:
        digits = found.group("hex") or found.group("short") or found.group("long")
        octal = found.group("octal")
        plain = found.group("plain")
        if plain is not None:
            return _PLAIN.get(plain, plain)
        code = int(octal, 8) if octal else int(digits, 16) if digits else -1
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            where = Span(start + found.start(), start + found.end())
            raise filter_error("E1201", f"{found.group()!a} is not a valid escape", source, where)
        return chr(code)

    return _ESCAPE.sub(replace, text) if "\\" in text else text
