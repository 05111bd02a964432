"""Extract the text and sections of a file: one function per content type. `EXTRACTORS` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vedette.search.content_type import ContentType, decode_text
from vedette.search.document import Document
from vedette.search.extraction.html import extract_html
from vedette.search.extraction.pdf import extract_pdf
from vedette.search.extraction.source_code import extract_code
from vedette.search.extraction.tabular import extract_csv, extract_json
from vedette.search.extraction.text import extract_markdown, extract_plain

__all__ = ["EXTRACTORS", "extract"]

EXTRACTORS: Mapping[ContentType, Callable[[str, str], Document]] = {
    ContentType.PLAIN: extract_plain,
    ContentType.MARKDOWN: extract_markdown,
    ContentType.CODE: extract_code,
    ContentType.HTML: extract_html,
    ContentType.JSON: extract_json,
    ContentType.CSV: extract_csv,
}
"""Functions of path and text. PDF is missing, because its extractor takes bytes."""


def extract(path: str, data: bytes, kind: ContentType) -> Document:
    """Extract the text and sections of a file. Raises E4512 if the file has no usable text."""
    if kind is ContentType.PDF:
        return extract_pdf(path, data)
    return EXTRACTORS[kind](path, decode_text(path, data))
