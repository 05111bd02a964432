"""The interface of the vector store.

Replacing a file's chunks is idempotent. After a crash the file is marked incomplete, and the next attempt overwrites or
deletes every leftover chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vedette.search.chunking import Chunk

__all__ = ["FileVectors", "SearchHit", "StoredFile", "VectorStore", "remove_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVectors:
    """The chunks of one file with their vectors."""

    path: str
    watch_id: str
    content_hash: str
    """Hash of the whole file, as in `FileContent.content_hash`."""
    embedder: str
    """Name of the embedder that made the vectors."""
    chunks: Sequence[Chunk]
    """At least one."""
    vectors: NDArray[np.float32]
    """One row per chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """Which content of a file is stored."""

    content_hash: str
    embedder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A chunk that a search found."""

    path: str
    start: int
    """First line or page."""
    end: int
    """Last line or page."""
    unit: str
    """`line` or `page`: what `start` and `end` count."""
    title: str
    text: str
    score: float
    """Cosine similarity, from -1 to 1 (same direction)."""


class VectorStore(Protocol):
    """Chunk collections with vectors.

    Every method raises E4521 if the store cannot be reached or written, and E4523 if it rejects the request. Only E4521
    counts as a failure of the sink.
    """

    def ensure_collection(self, collection: str, dimensions: int) -> None:
        """Create the collection if it does not exist. Raises E4523 if it has vectors of another size."""
        ...

    def stored_files(self, collection: str, paths: Sequence[str]) -> Mapping[str, StoredFile]:
        """Return those of the paths whose chunks are stored completely."""
        ...

    def replace(self, collection: str, file: FileVectors) -> None:
        """Replace all chunks of a file. Idempotent; durable after `flush`."""
        ...

    def remove(self, collection: str, path: str) -> None:
        """Remove all chunks of a file. Idempotent; durable after `flush`."""
        ...

    def flush(self) -> None:
        """Make all earlier changes durable."""
        ...

    def search(
        self, collection: str, vector: NDArray[np.float32], embedder: str, limit: int
    ) -> list[SearchHit]:
        """Return the nearest chunks of that embedder, best first. Empty if the collection does not exist."""
        ...

    def count_by_collection(self) -> Mapping[str, int]:
        """Return the number of chunks by collection."""
        ...

    def close(self) -> None: ...


def remove_files(store: VectorStore, collection: str, paths: Sequence[str]) -> int:
    """Remove the chunks of these files durably. Return how many of the files were stored."""
    stored = len(store.stored_files(collection, paths))
    for path in paths:
        store.remove(collection, path)
    store.flush()
    return stored
