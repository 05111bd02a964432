"""The seam to the vector store: what ingest and search ask of it.

A file's chunks are replaced as one step that can be repeated: whoever dies within it leaves a file that does not count
as stored, and the next try finds everything that was left.
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
    """All that is to be stored of one file."""

    path: str
    watch_id: str
    content_hash: str
    embedder: str
    chunks: Sequence[Chunk]
    """At least one."""
    vectors: NDArray[np.float32]
    """One row per chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """What chunk 0 says of a file."""

    content_hash: str
    embedder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    path: str
    start: int
    end: int
    unit: str
    """What start and end count: `line` or `page`."""
    title: str
    text: str
    score: float
    """Cosine: 1 is the same direction."""


class VectorStore(Protocol):
    """E4521 when it cannot be reached or written; nothing else is a reason to pause the queue."""

    def ensure_collection(self, collection: str, dimensions: int) -> None:
        """Make the collection if it is not there; E4523 when it has vectors of another size."""
        ...

    def stored_files(self, collection: str, paths: Sequence[str]) -> Mapping[str, StoredFile]:
        """Those of the paths that are stored whole."""
        ...

    def replace(self, collection: str, file: FileVectors) -> None:
        """The file's chunks are these and no others. May be repeated; durable after `flush`."""
        ...

    def remove(self, collection: str, path: str) -> None:
        """The file has no chunks. May be repeated; durable after `flush`."""
        ...

    def flush(self) -> None:
        """All that was replaced and removed is durable when it returns."""
        ...

    def paths(self, collection: str) -> set[str]:
        """Every file that has chunks."""
        ...

    def search(
        self, collection: str, vector: NDArray[np.float32], embedder: str, limit: int
    ) -> list[SearchHit]:
        """The nearest chunks of that embedder, best first; none when there is no such collection."""
        ...

    def count_by_collection(self) -> Mapping[str, int]:
        """Name ▸ chunks."""
        ...

    def close(self) -> None: ...


def remove_files(store: VectorStore, collection: str, paths: Sequence[str]) -> int:
    """Take these files out, durably; how many of them were there."""
    there = len(store.stored_files(collection, paths))
    for path in paths:
        store.remove(collection, path)
    store.flush()
    return there
