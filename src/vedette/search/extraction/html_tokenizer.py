"""HTML as tags and text, in one pass.

Python's own parser is quadratic in unclosed constructs (cpython gh-135462, gh-153030; early 3.11 releases have
neither fix): a file of 80 kB can keep it busy for minutes. Here an unclosed construct extends to the end of the file,
as in browsers, so every character is read once.
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
        (?: [^>=]++ | = \s*+ (?: "[^"]*+" | '[^']*+' )? )*+ (?: > | \Z )  # a quote that nobody closes is none
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
    """Both: `<br/>`."""


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    """Character references are decoded: `&amp;` is `&`."""
    line: int
    """Line on which it begins, from 1."""


def tokenize(source: str) -> Iterator[Tag | Text]:
    position, line = 0, 1
    while (found := _TOKEN.match(source, position)) is not None:
        end = found.end()
        if found["text"] is not None:
            yield Text(html.unescape(found["text"]), line)
        elif found["tag"] is not None:
            tag = _tag(found)
            yield tag
            end = _skip_raw_text(tag, source, end)
        line += source.count("\n", position, end)
        position = end


def _tag(found: re.Match[str]) -> Tag:
    closes = found["end"] == "/"
    return Tag(found["tag"].lower(), opens=not closes, closes=closes or found[0].endswith("/>"))


def _skip_raw_text(tag: Tag, source: str, start: int) -> int:
    if tag.closes or tag.name not in _RAW:
        return start
    closing = _RAW[tag.name].search(source, start)
    return closing.start() if closing is not None else len(source)
