"""HTML: the visible text, block by block, each with the source line on which it begins."""

from __future__ import annotations

import re

from vedette.search.document import Document, Section, truncate
from vedette.search.extraction.html_tokenizer import Tag, Text, tokenize

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
    for token in tokenize(text):
        match token:
            case Text():
                reader.handle_text(token)
            case Tag():
                reader.handle_tag(token)
    reader.end_block()
    return Document(lines=tuple(reader.lines), positions=tuple(reader.places), sections=tuple(reader.parts))


class _Reader:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: list[int] = []
        self.parts: list[Section] = []
        self._words: list[str] = []
        """Line of the current block's first word."""
        self._began = 1
        self._hidden = 0
        self._level = 0
        """Level of the current heading; 0 outside headings."""
        self._heading_stack: list[tuple[int, str]] = []

    def handle_tag(self, tag: Tag) -> None:
        if tag.name in _HIDDEN:
            self._hidden = max(0, self._hidden + tag.opens - tag.closes)
        elif tag.name in _BLOCKS:
            self.end_block()
            heading = _HEADING.fullmatch(tag.name)
            self._level = int(heading[1]) if heading is not None and not tag.closes else 0

    def handle_text(self, text: Text) -> None:
        if self._hidden or not text.text.strip():
            if self._words:
                self._words.append(" ")
            return
        if not self._words:
            leading = text.text[: len(text.text) - len(text.text.lstrip())]
            self._began = text.line + leading.count("\n")
        self._words.append(text.text)

    def end_block(self) -> None:
        """End the current block: its text becomes a line."""
        line = _SPACE.sub(" ", "".join(self._words)).strip()
        self._words = []
        if not line:
            return
        if self._level:
            above = (each for each in self._heading_stack if each[0] < self._level)
            self._heading_stack = [*above, (self._level, truncate(line))]
            title = " > ".join(words for _, words in self._heading_stack)
            self.parts.append(Section(start=len(self.lines), title=title))
        self.lines.append(line)
        self.places.append(self._began)
