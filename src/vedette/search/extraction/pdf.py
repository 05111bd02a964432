"""PDF: the text of each page. Positions are page numbers."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

from vedette.errors import IngestError
from vedette.search.document import Document, Section, split_lines

if TYPE_CHECKING:
    from pypdf import PageObject

__all__ = ["extract_pdf"]

BASE_STEPS, STEPS_PER_BYTE, MAX_STEPS = 20_000, 2, 2_000_000
"""A file may have `BASE_STEPS` drawing steps plus `STEPS_PER_BYTE` for each of its bytes, at most `MAX_STEPS`. A page
has several steps per word."""
PAGE_STEPS = 50
"""Steps that each page costs by itself, because a small file can refer to one page a thousand times."""
BASE_CONTENT_BYTES, CONTENT_PER_BYTE = 1_000_000, 50
"""The pages may have this many bytes uncompressed, plus `CONTENT_PER_BYTE` for each byte of the file. Compression
rarely saves more than nine tenths."""

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # problems of a file are reported in its outcome


def extract_pdf(path: str, data: bytes) -> Document:
    from pypdf import PdfReader

    lines: list[str] = []
    positions: list[int] = []
    sections: list[Section] = []
    budget = _WorkBudget(path, len(data))
    try:
        reader = PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise _unusable_error(path, "it is encrypted")
        for number, page in enumerate(reader.pages, start=1):
            budget.begin_page(page)
            text = page.extract_text(visitor_operand_before=budget.step)
            budget.check()
            if text.strip():
                sections.append(Section(start=len(lines), title=f"page {number}"))
                page_lines = split_lines(text)
                lines += page_lines
                positions += [number] * len(page_lines)
    except IngestError:
        raise
    except (Exception, RecursionError) as error:  # a damaged file can make the reader raise anything
        raise _unusable_error(path, f"{type(error).__name__}: {error}") from error
    if not lines:
        raise _unusable_error(path, "its pages contain no text, only images")
    return Document(
        lines=tuple(lines), positions=tuple(positions), sections=tuple(sections), position_unit="page"
    )


class _WorkBudget:
    """Limits the work for one file. It counts steps and bytes instead of time, so the result is the same on every
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
        """Raise E4512 if the budget is used up. Called again after each page, because pypdf ignores some exceptions."""
        if self._steps < 0 or self._bytes < 0:
            raise _unusable_error(
                self._path, "its pages need far more drawing steps than a file of its size should"
            )


def _unusable_error(path: str, reason: str) -> IngestError:
    return IngestError("E4512", f"no text can be read from {path}: {reason}", fields={"path": path})
