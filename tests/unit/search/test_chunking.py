"""Chunks are bounded, complete and in order, have correct spans, and follow the sections."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import FolderError
from vedette.search.chunking import ChunkingConfig, split_document
from vedette.search.document import Document, Section

LINES = st.lists(st.text(alphabet="ab \t", max_size=30), max_size=30)
CONFIGS = st.integers(1, 40).flatmap(
    lambda size: st.builds(
        ChunkingConfig, max_characters=st.just(size), overlap_characters=st.integers(0, size // 2)
    )
)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    lines = draw(LINES)
    starts = sorted(draw(st.sets(st.integers(0, max(0, len(lines) - 1))))) if lines else []
    return Document.from_lines(lines, [Section(start=start, title=str(start)) for start in starts])


@given(documents(), CONFIGS)
def test_chunks_are_bounded_and_complete_with_correct_spans(
    document: Document, config: ChunkingConfig
) -> None:
    chunks = split_document(document, config)
    covered: set[int] = set()
    for chunk in chunks:
        assert chunk.text.strip()
        assert len(chunk.text) <= config.max_characters
        first, last = chunk.span.start, chunk.span.end
        whole = "\n".join(document.lines[first - 1 : last])
        assert chunk.text == whole or (first == last and chunk.text in whole)
        covered |= set(range(first, last + 1))
    blank = {number for number, line in enumerate(document.lines, start=1) if not line.strip()}
    assert covered | blank == set(range(1, len(document.lines) + 1))
    assert [chunk.span.start for chunk in chunks] == sorted(chunk.span.start for chunk in chunks)


@given(st.lists(st.booleans(), min_size=1, max_size=300), CONFIGS)
def test_long_line_is_split_without_loss(letters: list[bool], config: ChunkingConfig) -> None:
    # No character occurs twice, so each piece has one position in the line.
    line = "".join(chr(0x4E00 + number) if letter else " " for number, letter in enumerate(letters))
    chunks = split_document(Document.from_lines([line], []), config)
    position = 0
    for chunk in chunks:
        assert len(chunk.text) <= config.max_characters
        start = line.index(chunk.text)
        assert not line[position:start].strip(), "only blanks between two pieces"
        position = max(position, start + len(chunk.text))
    assert not line[position:].strip()


def test_sections_are_not_split_and_small_ones_share_a_chunk() -> None:
    lines = ["# a", "x" * 10, "# b", "y" * 10, "# c", "z" * 25]
    parts = [Section(start=0, title="a"), Section(start=2, title="b"), Section(start=4, title="c")]
    config = ChunkingConfig(max_characters=30, overlap_characters=0)
    chunks = split_document(Document.from_lines(lines, parts), config)
    assert [(chunk.span.start, chunk.span.end, chunk.title) for chunk in chunks] == [
        (1, 4, "a"),
        (5, 6, "c"),
    ]


def test_long_section_is_split_between_lines_with_overlap() -> None:
    lines = [f"line {number:03}" for number in range(20)]
    config = ChunkingConfig(max_characters=45, overlap_characters=10)
    places = [(c.span.start, c.span.end) for c in split_document(Document.from_lines(lines, []), config)]
    assert places == [(1, 5), (5, 9), (9, 13), (13, 17), (17, 20)]


@pytest.mark.parametrize("values", [{"max_characters": 0}, {"max_characters": 10, "overlap_characters": 6}])
def test_invalid_sizes_are_rejected(values: dict[str, int]) -> None:
    with pytest.raises(FolderError, match="E4502"):
        ChunkingConfig(**values)
