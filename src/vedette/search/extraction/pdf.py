"""PDF: the text of each page. Positions are pages."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

from vedette.errors import IngestError
from vedette.search.document import Document, Section
from vedette.search.extraction.text import lines_of

if TYPE_CHECKING:
    from pypdf import PageObject

__all__ = ["extract_pdf"]

BASE_STEPS, STEPS_PER_BYTE, MAX_STEPS = 20_000, 2, 2_000_000
"""Maximum drawing steps of a file; a page has several per word."""
PAGE_STEPS = 50
"""Steps charged for a page itself: a small file can reference one page a thousand times."""
BASE_CONTENT_BYTES, CONTENT_PER_BYTE = 1_000_000, 50
"""Maximum uncompressed bytes of pages; compressed drawing is rarely below a tenth of it."""

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # problems of a file are part of its outcome


def extract_pdf(path: str, data: bytes) -> Document:
    from pypdf import PdfReader

    lines: list[str] = []
    places: list[int] = []
    parts: list[Section] = []
    work = _WorkBudget(path, len(data))
    try:
        reader = PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise _unusable(path, "it is encrypted")
        for number, page in enumerate(reader.pages, start=1):
            work.begin_page(page)
            text = page.extract_text(visitor_operand_before=work.step)
            work.check()
            if text.strip():
                parts.append(Section(start=len(lines), title=f"page {number}"))
                page_lines = lines_of(text)
                lines += page_lines
                places += [number] * len(page_lines)
    except IngestError:
        raise
    except (Exception, RecursionError) as error:  # a damaged file can make the reader raise anything
        raise _unusable(path, f"{type(error).__name__}: {error}") from error
    if not lines:
        raise _unusable(path, "its pages are pictures without text")
    return Document(lines=tuple(lines), positions=tuple(places), sections=tuple(parts), position_unit="page")


class _WorkBudget:
    """Remaining budget for reading a file. Counted in steps and bytes, not time, so the result is the same on every
    machine."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._steps = min(BASE_STEPS + STEPS_PER_BYTE * size, MAX_STEPS)
        self._bytes = BASE_CONTENT_BYTES + CONTENT_PER_BYTE * size

    def begin_page(self, page: PageObject) -> None:
        contents = page.get_contents()
        self._bytes -= 0 if contents is None else len(contents.get_data())
        self._steps -= PAGE_STEPS
        self.check()

    def step(self, *_: object) -> None:
        self._steps -= 1
        if self._steps < 0:
            self.check()

    def check(self) -> None:
        """The reader ignores exceptions in some parts of a page, so check again at its end."""
        if self._steps < 0 or self._bytes < 0:
            raise _unusable(self._path, "its pages are far more to draw than a file of its size has")


def _unusable(path: str, why: str) -> IngestError:
    return IngestError("E4512", f"no text can be read from {path}: {why}", fields={"path": path})
