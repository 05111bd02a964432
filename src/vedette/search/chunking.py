"""Split a document into chunks: pieces of bounded size, each embedded as one vector.

A section that fits into a chunk is not split, and small neighbouring sections share a chunk. A longer section is split
between lines, and the next chunk repeats the last lines of the one before. A line that is longer than a chunk is split,
at a space if possible. Every line that is not blank is in a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vedette.handshake.validation import require
from vedette.search.document import Document, SourceSpan

__all__ = ["Chunk", "ChunkingConfig", "split_document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkingConfig:
    max_characters: int = 1_600
    """Maximum characters of a chunk."""
    overlap_characters: int = 200
    """Maximum characters that are repeated in the next chunk of the same section."""

    def __post_init__(self) -> None:
        require(self.max_characters >= 1, "max_characters", self.max_characters, "a whole number from 1")
        fits = 0 <= self.overlap_characters <= self.max_characters // 2
        require(fits, "overlap_characters", self.overlap_characters, "from 0 to half of 'max_characters'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    text: str
    span: SourceSpan
    title: str
    """Title of the section in which the chunk begins."""


@dataclass(frozen=True, slots=True)
class _LineRange:
    """Lines of a document by index. `end` is not included."""

    start: int
    end: int
    title: str


def split_document(document: Document, config: ChunkingConfig | None = None) -> list[Chunk]:
    config = config or ChunkingConfig()
    lengths = [len(line) + 1 for line in document.lines]
    chunks: list[Chunk] = []
    for section in _merge_small_sections(document, lengths, config):
        chunks.extend(_split_section(document, lengths, section, config))
    return chunks


def _section_ranges(document: Document) -> Iterator[_LineRange]:
    starts = sorted({section.start for section in document.sections} | {0})
    titles = {section.start: section.title for section in document.sections}
    for start, end in zip(starts, [*starts[1:], len(document.lines)], strict=True):
        if end > start:
            yield _LineRange(start, end, titles.get(start, ""))


def _merge_small_sections(
    document: Document, lengths: list[int], config: ChunkingConfig
) -> Iterator[_LineRange]:
    """Merge small neighbouring sections while they fit."""
    merged: _LineRange | None = None
    size = 0
    for section in _section_ranges(document):
        length = sum(lengths[section.start : section.end])
        if merged is not None and size + length - 1 <= config.max_characters:
            merged = _LineRange(merged.start, section.end, merged.title or section.title)
            size += length
            continue
        if merged is not None:
            yield merged
        merged, size = section, length
    if merged is not None:
        yield merged


def _split_section(
    document: Document, lengths: list[int], section: _LineRange, config: ChunkingConfig
) -> Iterator[Chunk]:
    start = section.start
    while start < section.end:
        end, size = start, -1
        while end < section.end and size + lengths[end] <= config.max_characters:
            size += lengths[end]
            end += 1
        if end == start:  # a single line that is too long
            yield from _split_long_line(document, start, section.title, config)
            start += 1
            continue
        chunk = _chunk(document, start, end, section.title)
        if chunk is not None:
            yield chunk
        start = end if end == section.end else _next_start(lengths, start, end, config)


def _next_start(lengths: list[int], start: int, end: int, config: ChunkingConfig) -> int:
    """Return the first line of the next chunk, which repeats the last lines of this chunk but never all of them."""
    remaining = config.max_characters - lengths[end] + 1  # the next line must fit after the repeated lines
    allowed = min(config.overlap_characters, remaining)
    first, repeated = end, 0
    while first - 1 > start and repeated + lengths[first - 1] <= allowed:
        first -= 1
        repeated += lengths[first]
    return first


def _chunk(document: Document, start: int, end: int, title: str) -> Chunk | None:
    """Return the chunk of these lines without leading and trailing blank lines; None if all are blank."""
    while start < end and not document.lines[start].strip():
        start += 1
    while end > start and not document.lines[end - 1].strip():
        end -= 1
    if start == end:
        return None
    span = SourceSpan(
        start=document.positions[start], end=document.positions[end - 1], unit=document.position_unit
    )
    return Chunk(text="\n".join(document.lines[start:end]), span=span, title=title)


def _split_long_line(document: Document, index: int, title: str, config: ChunkingConfig) -> Iterator[Chunk]:
    line, position = document.lines[index], 0
    span = SourceSpan(
        start=document.positions[index], end=document.positions[index], unit=document.position_unit
    )
    while position < len(line):
        end = min(len(line), position + config.max_characters)
        if end < len(line):
            space = line.rfind(" ", position + config.max_characters // 2, end)
            end = space + 1 if space > 0 else end
        piece = line[position:end].strip()
        if piece:
            yield Chunk(text=piece, span=span, title=title)
        position = end if end == len(line) else max(end - config.overlap_characters, position + 1)
