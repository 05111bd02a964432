"""HTML: the visible text. Each block element becomes one line, with the line of the file on which it begins."""

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
    return Document(
        lines=tuple(reader.lines), positions=tuple(reader.positions), sections=tuple(reader.sections)
    )


class _Reader:
    """Collects the lines and sections of a document from tags and texts."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.positions: list[int] = []
        self.sections: list[Section] = []
        self._texts: list[str] = []
        """Texts of the current block."""
        self._first_line = 1
        """Line of the file on which the current block's first word is."""
        self._hidden_depth = 0
        """Number of open elements whose content is not visible."""
        self._heading_level = 0
        """Level of the current heading; 0 outside headings."""
        self._heading_stack: list[tuple[int, str]] = []
        """Level and title of the headings above the current block."""

    def handle_tag(self, tag: Tag) -> None:
        if tag.name in _HIDDEN:
            self._hidden_depth = max(0, self._hidden_depth + tag.opens - tag.closes)
        elif tag.name in _BLOCKS:
            self.end_block()
            heading = _HEADING.fullmatch(tag.name)
            self._heading_level = int(heading[1]) if heading is not None and not tag.closes else 0

    def handle_text(self, text: Text) -> None:
        if self._hidden_depth or not text.text.strip():
            if self._texts:
                self._texts.append(" ")
            return
        if not self._texts:
            leading = text.text[: len(text.text) - len(text.text.lstrip())]
            self._first_line = text.line + leading.count("\n")
        self._texts.append(text.text)

    def end_block(self) -> None:
        """End the current block. Its text becomes a line, and a section if it is a heading."""
        line = _SPACE.sub(" ", "".join(self._texts)).strip()
        self._texts = []
        if not line:
            return
        if self._heading_level:
            above = (heading for heading in self._heading_stack if heading[0] < self._heading_level)
            self._heading_stack = [*above, (self._heading_level, truncate(line))]
            title = " > ".join(text for _, text in self._heading_stack)
            self.sections.append(Section(start=len(self.lines), title=title))
        self.lines.append(line)
        self.positions.append(self._first_line)
