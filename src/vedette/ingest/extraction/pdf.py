"""PDF: the text of each page. Places are pages."""

from __future__ import annotations

import io
import logging

from vedette.errors import IngestError
from vedette.ingest.document import Document, Part
from vedette.ingest.extraction.plain import lines_of

__all__ = ["extract_pdf"]

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what is wrong with a file is part of its outcome


def extract_pdf(path: str, data: bytes) -> Document:
    from pypdf import PdfReader

    lines: list[str] = []
    places: list[int] = []
    parts: list[Part] = []
    try:
        reader = PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise _unusable(path, "it is encrypted")
        for number, page in enumerate(reader.pages, start=1):
            text = page.extract_text()
            if text.strip():
                parts.append(Part(start=len(lines), title=f"page {number}"))
                page_lines = lines_of(text)
                lines += page_lines
                places += [number] * len(page_lines)
    except IngestError:
        raise
    except (Exception, RecursionError) as error:  # a damaged file can make the reader fail in any way
        raise _unusable(path, f"{type(error).__name__}: {error}") from error
    if not lines:
        raise _unusable(path, "its pages are pictures without text")
    return Document(lines=tuple(lines), places=tuple(places), parts=tuple(parts), unit="page")


def _unusable(path: str, why: str) -> IngestError:
    return IngestError("E4512", f"no text can be read from {path}: {why}", fields={"path": path})
