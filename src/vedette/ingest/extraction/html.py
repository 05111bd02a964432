"""HTML: what a reader sees, block by block, each with the line of the source it begins on."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from vedette.ingest.document import Document, Part

__all__ = ["extract_html"]

_BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr li main nav ol option p pre section table tbody td tfoot th thead title tr ul".split()
)
_HIDDEN = frozenset({"script", "style", "template", "noscript", "svg"})
_HEADING = re.compile(r"h([1-6])")
_SPACE = re.compile(r"\s+")


def extract_html(path: str, text: str) -> Document:
    del path
    reader = _Reader()
    reader.feed(text)
    reader.close()
    reader.end_block()
    return Document(lines=tuple(reader.lines), places=tuple(reader.places), parts=tuple(reader.parts))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.places: list[int] = []
        self.parts: list[Part] = []
        self._words: list[str] = []
        self._began = 1
        self._hidden = 0
        self._level = 0
        """Of the heading we are in; 0 is none."""
        self._above: list[tuple[int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in _HIDDEN:
            self._hidden += 1
        elif tag in _BLOCKS:
            self.end_block()
            heading = _HEADING.fullmatch(tag)
            self._level = int(heading[1]) if heading is not None else 0

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif tag in _BLOCKS:
            self.end_block()
            self._level = 0

    def handle_data(self, data: str) -> None:
        if self._hidden or not data.strip():
            self._words.append(" " if data and self._words else "")
            return
        if not any(word.strip() for word in self._words):
            leading = data[: len(data) - len(data.lstrip())]
            self._began = self.getpos()[0] + leading.count("\n")
        self._words.append(data)

    def end_block(self) -> None:
        """What was read since the last block is a line of its own."""
        line = _SPACE.sub(" ", "".join(self._words)).strip()
        self._words = []
        if not line:
            return
        if self._level:
            self._above = [*(each for each in self._above if each[0] < self._level), (self._level, line)]
            title = " > ".join(words for _, words in self._above)
            self.parts.append(Part(start=len(self.lines), title=title))
        self.lines.append(line)
        self.places.append(self._began)
