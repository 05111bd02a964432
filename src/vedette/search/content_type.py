"""Detect the content type of a file, and decode the bytes of a text file."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath

from vedette.errors import IngestError

__all__ = ["CODE_LANGUAGES", "ContentType", "decode_text", "detect_content_type"]


class ContentType(StrEnum):
    PLAIN = "plain"
    MARKDOWN = "markdown"
    CODE = "code"
    HTML = "html"
    PDF = "pdf"
    JSON = "json"
    CSV = "csv"


CODE_LANGUAGES: Mapping[str, str] = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx"), "javascript"),
    ".go": "go",
    ".rs": "rust",
    **dict.fromkeys((".rb",), "ruby"),
    **dict.fromkeys((".sh", ".bash", ".zsh"), "shell"),
    **dict.fromkeys(
        (".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".java", ".kt", ".scala", ".swift", ".php"), "braces"
    ),
    ".sql": "sql",
}
_BY_SUFFIX: Mapping[str, ContentType] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), ContentType.MARKDOWN),
    **dict.fromkeys((".html", ".htm", ".xhtml"), ContentType.HTML),
    **dict.fromkeys((".json", ".geojson", ".webmanifest"), ContentType.JSON),
    **dict.fromkeys((".csv", ".tsv"), ContentType.CSV),
    ".pdf": ContentType.PDF,
    **dict.fromkeys(CODE_LANGUAGES, ContentType.CODE),
}
_BOMS = (  # longest first: the BOM of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
SNIFF_BYTES = 4_096
"""Number of leading bytes that are inspected."""


def detect_content_type(path: str, data: bytes) -> ContentType:
    """Detect the type by the first bytes if they identify a PDF, else by the name, else by the first bytes again."""
    head = data[:SNIFF_BYTES]
    if head.startswith(b"%PDF-"):
        return ContentType.PDF
    by_name = _BY_SUFFIX.get(PurePosixPath(path).suffix.lower())
    if by_name is not None:
        return by_name
    start = head.lstrip().lower()
    return ContentType.HTML if start.startswith((b"<!doctype html", b"<html")) else ContentType.PLAIN


def decode_text(path: str, data: bytes) -> str:
    """Decode the text of a file. Raises E4512 if it is not text."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _decode_strict(path, data, encoding)
    if b"\0" in data[:SNIFF_BYTES]:
        wide = _wide_encoding(data[:SNIFF_BYTES])
        if wide is None:
            raise _not_text_error(path, "it contains zero bytes, like a program, an image or an archive")
        return _decode_strict(path, data, wide)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _decode_guessed(path, data)


def _wide_encoding(head: bytes) -> str | None:
    """Recognize UTF-16 without a byte order mark: most even bytes are zero, or most odd bytes, but not both."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = max(1, len(head) // 2)
    if odd > 0.7 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.7 * half and odd < 0.1 * half else None


def _decode_strict(path: str, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise _not_text_error(
            path,
            f"its byte order mark says {encoding}, but it is not valid ({error.reason} at byte {error.start})",
        ) from error


def _decode_guessed(path: str, data: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(data[:65_536]).best()
    if best is None:
        raise _not_text_error(path, "its encoding cannot be detected")
    return data.decode(best.encoding, errors="replace")


def _not_text_error(path: str, why: str) -> IngestError:
    return IngestError(
        "E4512",
        f"{path} is not a text file: {why}; exclude such files with an ignore pattern",
        fields={"path": path},
    )
