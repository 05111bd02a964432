"""A vector store that opens in a background thread.

Qdrant's local mode reads the whole store into memory when it opens, which takes seconds. A daemon that starts over
unchanged folders compares them meanwhile and needs no vectors. Every method waits until the store is open.

If opening fails, the waiting methods raise the error, and one of them starts another attempt. So a probe of the sink's
circuit breaker opens the store once that is possible again.
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
    """A `VectorStore` that delegates to the result of `open`."""

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

    def search(
        self, collection: str, vector: NDArray[np.float32], embedder: str, limit: int
    ) -> list[SearchHit]:
        return self._store().search(collection, vector, embedder, limit)

    def count_by_collection(self) -> Mapping[str, int]:
        return self._store().count_by_collection()

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        with suppress(IngestError):  # the store could not be opened, so there is nothing to close
            self._opened.result().close()

    def _store(self) -> VectorStore:
        opened = self._opened
        try:
            return opened.result()
        except IngestError:
            with self._lock:
                if self._opened is opened:  # no other thread has started the next attempt
                    self._opened = self._pool.submit(self._open)
            raise
