"""Vectors in Qdrant: a folder of one process (local mode), or a server by its URL.

Payload of a point:

    path           of the file, absolute            content_hash  of the whole file
    watch_id       that found it                    embedder      that made the vector
    chunk          its number in the file, from 0   chunks        how many the file has
    start, end     lines or pages, and `unit`       title, text   of the chunk

Chunk 0 is the record of its file. Before anything else is written it says that the file is unfinished and how far its
chunks may reach, old and new; after all else it is written as it should be. So whoever dies in between leaves a record
that does not count as stored, and from which every chunk can be found and replaced or removed.
"""

from __future__ import annotations

import fcntl
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import IO, TYPE_CHECKING, Any

from vedette.errors import IngestError, VedetteError
from vedette.extras import require_packages
from vedette.search.vectors.qdrant_local import enable_wal, fsync_wal
from vedette.search.vectors.store import FileVectors, SearchHit, StoredFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vedette.settings import Settings

__all__ = ["QdrantStore", "open_qdrant_store"]

_NAMESPACE = uuid.UUID("6d0f0a1e-52c5-5b5e-9a53-5f1b8a5f7c11")
PAGE_POINTS = 1_000
"""Points read at a time."""
_REJECTED_STATUS = frozenset({400, 413, 422})
"""HTTP: the server is well, and does not take this."""
_INCOMPLETE = ""
"""The content hash of a file that is being written."""


def open_qdrant_store(directory: Path, settings: Settings) -> QdrantStore:
    """Open the vectors of a data directory: on the server that `qdrant_url` names, or in the folder `vectors`."""
    return QdrantStore(settings.qdrant_url or directory / "vectors")


class QdrantStore:
    """`place`: a folder for local mode, or `http://…` of a server. For one process at a time in local mode."""

    def __init__(self, place: str | Path, *, timeout_seconds: int = 30) -> None:
        require_packages(["numpy", "qdrant_client"], extra="files", feature="the vector store")
        from qdrant_client import QdrantClient, models

        self.place, self._models = str(place), models
        self._local_lock = RLock()
        """Local mode is made for one thread: a search waits while a file is stored."""
        self._sizes: dict[str, int] = {}
        """Collections that are there, and the size of their vectors."""
        self._to_sync: dict[str, Path] = {}
        """Collections of local mode that `flush` makes durable."""
        self._lock: IO[str] | None = None
        with self._translate_errors():
            if "://" in self.place:
                self._client: Any = QdrantClient(
                    url=self.place, timeout=timeout_seconds, check_compatibility=False
                )
            else:
                Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = _locked(Path(place))
                try:
                    self._client = QdrantClient(path=self.place)
                except BaseException:
                    self._lock.close()
                    raise

    def ensure_collection(self, collection: str, dimensions: int) -> None:
        if collection not in self._sizes:
            self._sizes[collection] = self._create_collection(collection, dimensions)
        size = self._sizes[collection]
        if size != dimensions:
            raise IngestError(
                "E4523",
                f"the collection '{collection}' holds vectors of {size} numbers, the embedder makes {dimensions}: "
                "use the embedder it was made with, or another collection",
                fields={"collection": collection, "size": size, "dimensions": dimensions},
            )

    def stored_files(self, collection: str, paths: Sequence[str]) -> Mapping[str, StoredFile]:
        return {
            record["path"]: StoredFile(content_hash=record["content_hash"], embedder=record["embedder"])
            for record in self._records(collection, paths)
            if record["content_hash"] != _INCOMPLETE
        }

    def replace(self, collection: str, file: FileVectors) -> None:
        models, count = self._models, len(file.chunks)
        before = self._chunk_upper_bound(collection, file.path)
        points = list(self._points(collection, file))
        if count == 1 and before <= 1:  # one write, which is there or not
            self._apply(collection, [self._upsert(points)])
            return
        incomplete_marker = models.PointStruct(
            id=points[0].id,
            vector=points[0].vector,
            payload={**points[0].payload, "content_hash": _INCOMPLETE, "chunks": max(before, count)},
        )
        steps: list[Any] = [self._upsert([incomplete_marker])]
        if count > 1:
            steps.append(self._upsert(points[1:]))
        if before > count:
            steps.append(self._delete(collection, file.path, range(count, before)))
        steps.append(self._upsert(points[:1]))
        self._apply(collection, steps)

    def remove(self, collection: str, path: str) -> None:
        before = self._chunk_upper_bound(collection, path)
        steps = [self._delete(collection, path, range(1, before))] if before > 1 else []
        if before:
            self._apply(collection, [*steps, self._delete(collection, path, range(1))])

    def flush(self) -> None:
        with self._translate_errors():
            for file in self._to_sync.values():
                fsync_wal(file)

    def paths(self, collection: str) -> set[str]:
        return {payload["path"] for payload in self._scroll(collection, None, ["path"])}

    def search(
        self, collection: str, vector: NDArray[np.float32], embedder: str, limit: int
    ) -> list[SearchHit]:
        with self._translate_errors():
            if not self._client.collection_exists(collection):
                return []
            # Local mode filters point by point, in Python: ten times the time of the search itself. Nearly always all
            # that is found is of one embedder, and then the filter would have changed nothing.
            points = self._nearest(collection, vector, None, limit)
            if any(point.payload["embedder"] != embedder for point in points):
                only = self._models.Filter(must=[self._is("embedder", embedder)])
                points = self._nearest(collection, vector, only, limit)
        return [_hit(point) for point in points]

    def _nearest(self, collection: str, vector: NDArray[np.float32], chosen: Any, limit: int) -> list[Any]:
        answer = self._client.query_points(
            collection, query=vector.tolist(), query_filter=chosen, limit=limit, with_payload=True
        )
        return list(answer.points)

    def count_by_collection(self) -> Mapping[str, int]:
        with self._translate_errors():
            names = [each.name for each in self._client.get_collections().collections]
            return {name: int(self._client.count(name, exact=True).count) for name in sorted(names)}

    def close(self) -> None:
        with self._translate_errors():
            self._client.close()
            if self._lock is not None:
                self._lock.close()

    def _create_collection(self, collection: str, dimensions: int) -> int:
        models = self._models
        with self._translate_errors():
            if not self._client.collection_exists(collection):
                parameters = models.VectorParams(size=dimensions, distance=models.Distance.COSINE)
                try:
                    self._client.create_collection(collection, vectors_config=parameters)
                except Exception as error:
                    if not self._client.collection_exists(collection):  # else another executor was quicker
                        if isinstance(error, ValueError):  # by local mode's rules for names
                            raise _rejected_error(
                                f"the collection '{collection}'", self.place, error
                            ) from error
                        raise
                if "://" in self.place:
                    self._client.create_payload_index(collection, "path", models.PayloadSchemaType.KEYWORD)
            file = enable_wal(self._client, collection)
            if file is not None:
                self._to_sync[collection] = file
            return int(self._client.get_collection(collection).config.params.vectors.size)

    def _points(self, collection: str, file: FileVectors) -> Iterator[Any]:
        for number, chunk in enumerate(file.chunks):
            payload = {
                "path": file.path,
                "watch_id": file.watch_id,
                "content_hash": file.content_hash,
                "embedder": file.embedder,
                "chunk": number,
                "chunks": len(file.chunks),
                "start": chunk.span.start,
                "end": chunk.span.end,
                "unit": chunk.span.unit,
                "title": chunk.title,
                "text": chunk.text,
            }
            id = _id(collection, file.path, number)
            yield self._models.PointStruct(id=id, vector=file.vectors[number].tolist(), payload=payload)

    def _apply(self, collection: str, steps: Sequence[Any]) -> None:
        """In this order. A server is asked once; local mode for each, for of several it checks every point twice."""
        with self._translate_errors():
            if self._lock is None:
                self._client.batch_update_points(collection, steps, wait=True)
                return
            for step in steps:
                if isinstance(step, self._models.UpsertOperation):
                    put: Any = step.upsert
                    self._client.upsert(collection, put.points, wait=True)
                else:
                    self._client.delete(collection, step.delete, wait=True)

    def _upsert(self, points: list[Any]) -> Any:
        return self._models.UpsertOperation(upsert=self._models.PointsList(points=points))

    def _delete(self, collection: str, path: str, numbers: range) -> Any:
        ids: list[Any] = [_id(collection, path, number) for number in numbers]
        return self._models.DeleteOperation(delete=self._models.PointIdsList(points=ids))

    def _chunk_upper_bound(self, collection: str, path: str) -> int:
        """No chunk of the file has this number or a higher one."""
        return max((int(record["chunks"]) for record in self._records(collection, [path])), default=0)

    def _records(self, collection: str, paths: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """The payloads of the files' first chunks, found by their ids: a search by path would look at every point."""
        fields = ["path", "content_hash", "embedder", "chunks"]
        with self._translate_errors():
            if collection not in self._sizes and not self._client.collection_exists(collection):
                return
            for start in range(0, len(paths), PAGE_POINTS):
                ids = [_id(collection, path, 0) for path in paths[start : start + PAGE_POINTS]]
                for point in self._client.retrieve(collection, ids, with_payload=fields):
                    yield point.payload

    def _is(self, key: str, value: str) -> Any:
        return self._models.FieldCondition(key=key, match=self._models.MatchValue(value=value))

    def _scroll(self, collection: str, chosen: Any, fields: list[str]) -> Iterator[Mapping[str, Any]]:
        with self._translate_errors():
            if not self._client.collection_exists(collection):
                return
            offset = None
            while True:
                points, offset = self._client.scroll(
                    collection, scroll_filter=chosen, limit=PAGE_POINTS, offset=offset, with_payload=fields
                )
                yield from (point.payload for point in points)
                if offset is None:
                    return

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Whatever goes wrong on the way to Qdrant is E4521; what it looked at and refused is E4523."""
        try:
            if self._lock is None:
                yield
                return
            with self._local_lock:
                yield
        except VedetteError:
            raise
        except Exception as error:
            if getattr(error, "status_code", None) in _REJECTED_STATUS:
                raise _rejected_error("what was asked", self.place, error) from error
            raise IngestError(
                "E4521",
                f"the vectors in {self.place} cannot be used ({type(error).__name__}: {error}): "
                f"{_advice(self.place, error)}",
                fields={"place": self.place},
            ) from error


def _rejected_error(what: str, place: str, error: Exception) -> IngestError:
    """Others must not wait for it: asking again would not help."""
    return IngestError(
        "E4523",
        f"the vectors in {place} do not take {what} ({type(error).__name__}: {error}): use a collection of another "
        "name, or the embedder that it was made with",
        fields={"place": place},
    )


def _id(collection: str, path: str, number: int) -> str:
    """The same file and number is the same point: writing it twice is writing it once."""
    return str(uuid.uuid5(_NAMESPACE, f"{collection}\0{path}\0{number}"))


def _locked(folder: Path) -> IO[str]:
    """Ours before Qdrant looks: its own check leaves a file open when it refuses."""
    lock = (folder / "vedette.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise
    return lock


def _advice(place: str, error: Exception) -> str:
    if "://" in place:
        return "is the server running, and is that its address?"
    if isinstance(error, BlockingIOError):
        return "one process at a time uses a folder; a Qdrant server serves many"
    if isinstance(error, OSError | sqlite3.Error):
        return "is there room on its disk, and may this user write there?"
    return "the folder may be damaged: bring back a copy of it"


def _hit(point: Any) -> SearchHit:
    payload = point.payload
    return SearchHit(
        path=payload["path"],
        start=payload["start"],
        end=payload["end"],
        unit=payload["unit"],
        title=payload["title"],
        text=payload["text"],
        score=float(point.score),
    )
