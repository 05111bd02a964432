"""In-memory twin of `vedette.search.vectors.qdrant`, also for tests of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vedette.errors import IngestError
from vedette.search.vectors.store import FileVectors, SearchHit, StoredFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MemoryVectorStore"]


class MemoryVectorStore:
    """While `outage` is set, every call raises E4521 with that text."""

    def __init__(self) -> None:
        self.outage: str | None = None
        self.files_written = 0
        """Number of files written so far."""
        self._dimensions: dict[str, int] = {}
        self._files: dict[str, dict[str, FileVectors]] = {}

    def ensure_collection(self, collection: str, dimensions: int) -> None:
        self._check_available()
        size = self._dimensions.setdefault(collection, dimensions)
        self._files.setdefault(collection, {})
        if size != dimensions:
            raise IngestError("E4523", f"'{collection}' has vectors of {size} dimensions, not {dimensions}")

    def stored_files(self, collection: str, paths: Sequence[str]) -> Mapping[str, StoredFile]:
        self._check_available()
        files = self._files.get(collection, {})
        return {
            path: StoredFile(content_hash=files[path].content_hash, embedder=files[path].embedder)
            for path in paths
            if path in files
        }

    def replace(self, collection: str, file: FileVectors) -> None:
        self._check_available()
        self.files_written += 1
        self._files[collection][file.path] = file

    def remove(self, collection: str, path: str) -> None:
        self._check_available()
        self._files.get(collection, {}).pop(path, None)

    def flush(self) -> None:
        self._check_available()

    def paths(self, collection: str) -> set[str]:
        self._check_available()
        return set(self._files.get(collection, {}))

    def search(
        self, collection: str, vector: NDArray[np.float32], embedder: str, limit: int
    ) -> list[SearchHit]:
        self._check_available()
        hits = [
            SearchHit(
                path=file.path,
                start=chunk.span.start,
                end=chunk.span.end,
                unit=chunk.span.unit,
                title=chunk.title,
                text=chunk.text,
                score=float(row @ vector),
            )
            for file in self._files.get(collection, {}).values()
            if file.embedder == embedder
            for chunk, row in zip(file.chunks, file.vectors, strict=True)
        ]
        return sorted(hits, key=lambda hit: -hit.score)[:limit]

    def count_by_collection(self) -> Mapping[str, int]:
        self._check_available()
        return {
            name: sum(len(file.chunks) for file in files.values())
            for name, files in sorted(self._files.items())
        }

    def close(self) -> None:
        pass

    def _check_available(self) -> None:
        if self.outage is not None:
            raise IngestError("E4521", self.outage)
