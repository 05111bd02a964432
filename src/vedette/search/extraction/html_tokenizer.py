"""Split HTML into tags and texts, in one pass.

`html.parser` of the standard library takes quadratic time for unclosed constructs in early releases of Python 3.11
(cpython gh-135462, gh-153030), so a file of 80 kB can take minutes. Here an unclosed construct extends to the end of
the file, as in browsers, and every character is read once.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Tag", "Text", "tokenize"]

_TOKEN = re.compile(
    r"""
    (?P<text> [^<]++ | < (?![a-zA-Z!?/]) )
    | <!-- (?: -?> | .*? (?: --!?> | \Z ) )
    | <!\[CDATA\[ .*? (?: \]\]> | \Z )
    | < (?P<end>/?) (?P<tag>[a-zA-Z][^\s/>]*+)
        (?: [^>=]++ | = \s*+ (?: "[^"]*+" | '[^']*+' )? )*+ (?: > | \Z )  # an unclosed quote is an ordinary character
    | <[!?/] [^>]*+ (?: > | \Z )
    """,
    re.VERBOSE | re.DOTALL,
)
_RAW = {name: re.compile(rf"</{name}(?![^\s/>])", re.IGNORECASE) for name in ("script", "style")}
"""Elements whose content is raw text up to their own end tag."""


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    """In lower case."""
    opens: bool
    closes: bool
    """`<br/>` opens and closes."""


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    """With character references decoded: `&amp;` becomes `&`."""
    line: int
    """Line on which it begins, from 1."""


def tokenize(source: str) -> Iterator[Tag | Text]:
    position, line = 0, 1
    while (match := _TOKEN.match(source, position)) is not None:
        end = match.end()
        if match["text"] is not None:
            yield Text(html.unescape(match["text"]), line)
        elif match["tag"] is not None:
            tag = _tag(match)
            yield tag
            end = _skip_raw_text(tag, source, end)
        line += source.count("\n", position, end)
        position = end


def _tag(match: re.Match[str]) -> Tag:
    closes = match["end"] == "/"
    return Tag(match["tag"].lower(), opens=not closes, closes=closes or match[0].endswith("/>"))


def _skip_raw_text(tag: Tag, source: str, start: int) -> int:
    """Return the position of the end tag if the tag starts an element with raw text, else `start`."""
    if tag.closes or tag.name not in _RAW:
        return start
    closing = _RAW[tag.name].search(source, start)
    return closing.start() if closing is not None else len(source)
