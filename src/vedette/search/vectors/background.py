"""A vector store that opens in the background: Qdrant's local mode reads all it has into memory, seconds of it.

A daemon that starts over folders that did not change needs no vectors, and compares them meanwhile. Whoever does need
them waits. When the store cannot be opened, whoever asked hears why, and the next one finds another attempt under way:
so that the probes of the sink's breaker open it when it can be opened again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from vedette.errors import IngestError
from vedette.search.vectors.store import FileVectors, SearchHit, StoredFile, VectorStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BackgroundVectorStore"]


class BackgroundVectorStore:
    """`VectorStore`, by way of one that `open` makes."""

    def __init__(self, open: Callable[[], VectorStore]) -> None:
        self._open = open
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="vedette-vectors")
        self._lock = Lock()
        self._opened: Future[VectorStore] = self._pool.submit(open)

    def ensure_collection(self, collection: str, dimensions: int) -> None:
        self._store().ensure_collection(collection, dimensions)

    def stored_files(self, collection: str, paths: Sequence[str]) -> Mapping[str, StoredFile]:
        return self._store().stored_files(collection, paths)

    def replace(self, collection: str, file: FileVectors) -> None:
        self._store().replace(collection, file)

    def remove(self, collection: str, path: str) -> None:
        self._store().remove(collection, path)

    def flush(self) -> None:
        self._store().flush()

    def paths(self, collection: str) -> set[str]:
        return self._store().paths(collection)

    def search(
        self, collection: str, vector: NDArray[np.float32], embedder: str, limit: int
    ) -> list[SearchHit]:
        return self._store().search(collection, vector, embedder, limit)

    def count_by_collection(self) -> Mapping[str, int]:
        return self._store().count_by_collection()

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        with suppress(IngestError):  # it never opened: nothing to close
            self._opened.result().close()

    def _store(self) -> VectorStore:
        opened = self._opened
        try:
            return opened.result()
        except IngestError:
            with self._lock:
                if self._opened is opened:
                    self._opened = self._pool.submit(self._open)
            raise
