"""Text out of a file, one module per type. `EXTRACTORS` is the list of what can be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vedette.ingest.detection import ContentType, decoded
from vedette.ingest.document import Document
from vedette.ingest.extraction.code import extract_code
from vedette.ingest.extraction.html import extract_html
from vedette.ingest.extraction.markdown import extract_markdown
from vedette.ingest.extraction.pdf import extract_pdf
from vedette.ingest.extraction.plain import extract_plain
from vedette.ingest.extraction.tables import extract_csv, extract_json

__all__ = ["EXTRACTORS", "extract"]

EXTRACTORS: Mapping[ContentType, Callable[[str, str], Document]] = {
    ContentType.PLAIN: extract_plain,
    ContentType.MARKDOWN: extract_markdown,
    ContentType.CODE: extract_code,
    ContentType.HTML: extract_html,
    ContentType.JSON: extract_json,
    ContentType.CSV: extract_csv,
}
"""Path and text to a document. PDF is not among them: its bytes are no text."""


def extract(path: str, data: bytes, kind: ContentType) -> Document:
    """The text of a file and its parts; E4512 when it has none that can be used."""
    if kind is ContentType.PDF:
        return extract_pdf(path, data)
    return EXTRACTORS[kind](path, decoded(path, data))
