"""The format of a Qdrant point, and how points of another format are treated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vedette.search.chunking import Chunk
from vedette.search.document import SourceSpan
from vedette.search.embedding import HashingEmbedder
from vedette.search.vectors.qdrant import QdrantStore
from vedette.search.vectors.store import FileVectors

EMBEDDER = HashingEmbedder(32)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QdrantStore]:
    opened = QdrantStore(tmp_path)
    opened.ensure_collection("docs", 32)
    yield opened
    opened.close()


def file(*texts: str) -> FileVectors:
    return FileVectors(
        path="/notes/a.pdf",
        watch_id="notes",
        content_hash="abc",
        embedder=EMBEDDER.name,
        chunks=[
            Chunk(text=text, span=SourceSpan(start=3, end=5, unit="page"), title="page 3") for text in texts
        ],
        vectors=EMBEDDER.embed(texts),
    )


def points(store: QdrantStore) -> dict[str, dict[str, Any]]:
    found, _ = store._client.scroll("docs", limit=10, with_payload=True)
    return {point.id: point.payload for point in found}


def test_golden_points(store: QdrantStore) -> None:
    store.replace("docs", file("red apples", "green pears"))
    common = {
        "format": 1,
        "path": "/notes/a.pdf",
        "watch_id": "notes",
        "content_hash": "abc",
        "embedder": "hashing-32",
        "chunks": 2,
        "start": 3,
        "end": 5,
        "unit": "page",
        "title": "page 3",
    }
    assert points(store) == {
        "f1e92794-4972-5858-85a8-215ce06bab98": {**common, "chunk": 0, "text": "red apples"},
        "f484e902-7f70-5b79-a8c7-c13ac8b5b642": {**common, "chunk": 1, "text": "green pears"},
    }


def test_points_of_another_format_are_ignored_and_replaced(store: QdrantStore) -> None:
    store.replace("docs", file("red apples", "green pears", "plums"))
    store._client.set_payload("docs", {"format": 0}, points=list(points(store)))
    assert store.stored_files("docs", ["/notes/a.pdf"]) == {}
    query = EMBEDDER.embed(["plums"])[0]
    assert store.search("docs", query, EMBEDDER.name, 5) == []
    store.replace("docs", file("cherries", "plums"))
    assert [hit.text for hit in store.search("docs", query, EMBEDDER.name, 5)] == ["plums", "cherries"]
    assert store.count_by_collection() == {"docs": 2}
