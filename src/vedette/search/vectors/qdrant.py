"""Vectors in Qdrant: a folder that one process opens (local mode), or a server by its URL.

A chunk is a point. Its id is a UUID made from collection, path and chunk number. Its payload, format 1:

    format         1                                content_hash   SHA-256 of the whole file, or "" (see below)
    path           absolute path of the file        embedder       name of the embedder that made the vector
    watch_id       watch that found the file        start, end     first and last line or page of the chunk
    chunk          number in the file, from 0       unit           "line" or "page"
    chunks         number of chunks of the file     title, text    of the chunk

Points of another format are ignored by searches and do not count as stored, so their files are ingested again.

Chunk 0 is the record of its file. `replace` writes in this order: chunk 0 with an empty `content_hash` and, as
`chunks`, the larger of the old and new number; the other chunks; the deletion of surplus chunks; the final chunk 0.
After a crash in between, the file does not count as stored, and `chunks` of chunk 0 limits the numbers of the points to
overwrite or delete.
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

PAYLOAD_FORMAT = 1
_NAMESPACE = uuid.UUID("6d0f0a1e-52c5-5b5e-9a53-5f1b8a5f7c11")
PAGE_POINTS = 1_000
"""Points that one request reads."""
_REJECTED_STATUS = frozenset({400, 413, 422})
"""HTTP status codes of a server that works and rejects the request."""
_INCOMPLETE = ""
"""`content_hash` in chunk 0 of a file whose chunks are being replaced."""


def open_qdrant_store(directory: Path, settings: Settings) -> QdrantStore:
    """Open the store of a data directory: the server of the setting `qdrant_url`, or the folder `vectors`."""
    return QdrantStore(settings.qdrant_url or directory / "vectors")


class QdrantStore:
    """A `VectorStore` in Qdrant. In local mode one process can have the folder open."""

    def __init__(self, location: str | Path, *, timeout_seconds: int = 30) -> None:
        """`location` is a folder for local mode, or the URL of a server."""
        require_packages(["numpy", "qdrant_client"], extra="files", feature="the vector store")
        from qdrant_client import QdrantClient, models

        self.location, self._models = str(location), models
        self._local_lock = RLock()
        """Held during each operation in local mode, which is not thread-safe. A search waits while a file is stored."""
        self._sizes: dict[str, int] = {}
        """Dimensions of the collections that are known to exist."""
        self._wal_files: dict[str, Path] = {}
        """SQLite files of local collections, which `flush` makes durable."""
        self._lock_file: IO[str] | None = None
        """The locked file of local mode; None for a server."""
        with self._translate_errors():
            if "://" in self.location:
                self._client: Any = QdrantClient(
                    url=self.location, timeout=timeout_seconds, check_compatibility=False
                )
            else:
                Path(location).mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock_file = _lock_folder(Path(location))
                try:
                    self._client = QdrantClient(path=self.location)
                except BaseException:
                    self._lock_file.close()
                    raise

    def ensure_collection(self, collection: str, dimensions: int) -> None:
        if collection not in self._sizes:
            self._sizes[collection] = self._create_collection(collection, dimensions)
        size = self._sizes[collection]
        if size != dimensions:
            raise IngestError(
                "E4523",
                f"the vectors of the collection '{collection}' have {size} dimensions, those of the embedder "
                f"{dimensions}: use the embedder that the collection was created with, or another collection",
                fields={"collection": collection, "size": size, "dimensions": dimensions},
            )

    def stored_files(self, collection: str, paths: Sequence[str]) -> Mapping[str, StoredFile]:
        return {
            record["path"]: StoredFile(content_hash=record["content_hash"], embedder=record["embedder"])
            for record in self._file_records(collection, paths)
            if record.get("format") == PAYLOAD_FORMAT and record["content_hash"] != _INCOMPLETE
        }

    def replace(self, collection: str, file: FileVectors) -> None:
        models, count = self._models, len(file.chunks)
        old_bound = self._chunk_upper_bound(collection, file.path)
        points = list(self._points(collection, file))
        if count == 1 and old_bound <= 1:  # a single write is atomic
            self._apply(collection, [self._upsert(points)])
            return
        incomplete_marker = models.PointStruct(
            id=points[0].id,
            vector=points[0].vector,
            payload={**points[0].payload, "content_hash": _INCOMPLETE, "chunks": max(old_bound, count)},
        )
        steps: list[Any] = [self._upsert([incomplete_marker])]
        if count > 1:
            steps.append(self._upsert(points[1:]))
        if old_bound > count:
            steps.append(self._delete(collection, file.path, range(count, old_bound)))
        steps.append(self._upsert(points[:1]))
        self._apply(collection, steps)

    def remove(self, collection: str, path: str) -> None:
        bound = self._chunk_upper_bound(collection, path)
        steps = [self._delete(collection, path, range(1, bound))] if bound > 1 else []
        if bound:  # chunk 0 is deleted last, so that an interrupted removal can be repeated
            self._apply(collection, [*steps, self._delete(collection, path, range(1))])

    def flush(self) -> None:
        with self._translate_errors():
            for file in self._wal_files.values():
                fsync_wal(file)

    def search(
        self, collection: str, vector: NDArray[np.float32], embedder: str, limit: int
    ) -> list[SearchHit]:
        with self._translate_errors():
            if not self._client.collection_exists(collection):
                return []
            # Local mode filters point by point in Python, which takes ten times as long as the search. Nearly always
            # all points are of one embedder and of the current format, so filter only if the result has others.
            points = self._nearest(collection, vector, None, limit)
            if any(not _is_comparable(point.payload, embedder) for point in points):
                conditions = [self._equals("embedder", embedder), self._equals("format", PAYLOAD_FORMAT)]
                points = self._nearest(collection, vector, self._models.Filter(must=conditions), limit)
        return [_decode_hit(point) for point in points]

    def _nearest(self, collection: str, vector: NDArray[np.float32], condition: Any, limit: int) -> list[Any]:
        response = self._client.query_points(
            collection, query=vector.tolist(), query_filter=condition, limit=limit, with_payload=True
        )
        return list(response.points)

    def count_by_collection(self) -> Mapping[str, int]:
        with self._translate_errors():
            names = [collection.name for collection in self._client.get_collections().collections]
            return {name: int(self._client.count(name, exact=True).count) for name in sorted(names)}

    def close(self) -> None:
        with self._translate_errors():
            self._client.close()
            if self._lock_file is not None:
                self._lock_file.close()

    def _create_collection(self, collection: str, dimensions: int) -> int:
        """Create the collection if it does not exist. Return the dimensions of its vectors."""
        models = self._models
        with self._translate_errors():
            if not self._client.collection_exists(collection):
                parameters = models.VectorParams(size=dimensions, distance=models.Distance.COSINE)
                try:
                    self._client.create_collection(collection, vectors_config=parameters)
                except Exception as error:
                    # If it exists now, another Spark executor has created it at the same time.
                    if not self._client.collection_exists(collection):
                        if isinstance(error, ValueError):  # local mode rejects the name
                            raise _rejected_error(
                                f"the collection '{collection}'", self.location, error
                            ) from error
                        raise
                if "://" in self.location:
                    self._client.create_payload_index(collection, "path", models.PayloadSchemaType.KEYWORD)
            file = enable_wal(self._client, collection)
            if file is not None:
                self._wal_files[collection] = file
            return int(self._client.get_collection(collection).config.params.vectors.size)

    def _points(self, collection: str, file: FileVectors) -> Iterator[Any]:
        for number, chunk in enumerate(file.chunks):
            payload = {
                "format": PAYLOAD_FORMAT,
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
            id = _point_id(collection, file.path, number)
            yield self._models.PointStruct(id=id, vector=file.vectors[number].tolist(), payload=payload)

    def _apply(self, collection: str, steps: Sequence[Any]) -> None:
        """Apply the steps in this order: by one request to a server, one by one in local mode.

        A batch in local mode would check every point twice.
        """
        with self._translate_errors():
            if self._lock_file is None:
                self._client.batch_update_points(collection, steps, wait=True)
                return
            for step in steps:
                if isinstance(step, self._models.UpsertOperation):
                    upsert: Any = step.upsert
                    self._client.upsert(collection, upsert.points, wait=True)
                else:
                    self._client.delete(collection, step.delete, wait=True)

    def _upsert(self, points: list[Any]) -> Any:
        return self._models.UpsertOperation(upsert=self._models.PointsList(points=points))

    def _delete(self, collection: str, path: str, numbers: range) -> Any:
        ids: list[Any] = [_point_id(collection, path, number) for number in numbers]
        return self._models.DeleteOperation(delete=self._models.PointIdsList(points=ids))

    def _chunk_upper_bound(self, collection: str, path: str) -> int:
        """Return a number that is higher than that of every stored chunk of the file."""
        return max((int(record["chunks"]) for record in self._file_records(collection, [path])), default=0)

    def _file_records(self, collection: str, paths: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the payloads of chunk 0 of the files.

        They are read by id, because a search by path reads every point.
        """
        fields = ["format", "path", "content_hash", "embedder", "chunks"]
        with self._translate_errors():
            if collection not in self._sizes and not self._client.collection_exists(collection):
                return
            for start in range(0, len(paths), PAGE_POINTS):
                ids = [_point_id(collection, path, 0) for path in paths[start : start + PAGE_POINTS]]
                for point in self._client.retrieve(collection, ids, with_payload=fields):
                    yield point.payload

    def _equals(self, key: str, value: str | int) -> Any:
        return self._models.FieldCondition(key=key, match=self._models.MatchValue(value=value))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Hold the lock of local mode. Raise E4523 for a request that Qdrant rejects, E4521 for any other failure."""
        try:
            if self._lock_file is None:
                yield
                return
            with self._local_lock:
                yield
        except VedetteError:
            raise
        except Exception as error:
            if getattr(error, "status_code", None) in _REJECTED_STATUS:
                raise _rejected_error("the request", self.location, error) from error
            raise IngestError(
                "E4521",
                f"the vector store {self.location} cannot be used ({type(error).__name__}: {error}): "
                f"{_advice(self.location, error)}",
                fields={"place": self.location},
            ) from error


def _rejected_error(what: str, location: str, error: Exception) -> IngestError:
    """E4523 does not count as a failure of the sink, because a retry would be rejected again."""
    return IngestError(
        "E4523",
        f"the vector store {location} rejects {what} ({type(error).__name__}: {error}): use another collection name, "
        "or the embedder that the collection was created with",
        fields={"place": location},
    )


def _point_id(collection: str, path: str, number: int) -> str:
    """The id depends only on these values, so writing a chunk again replaces its point."""
    return str(uuid.uuid5(_NAMESPACE, f"{collection}\0{path}\0{number}"))


def _lock_folder(folder: Path) -> IO[str]:
    """Lock the folder before Qdrant does, because Qdrant's own check leaks an open file when it fails."""
    lock = (folder / "vedette.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise
    return lock


def _advice(location: str, error: Exception) -> str:
    if "://" in location:
        return "check that the server runs and that the address is right"
    if isinstance(error, BlockingIOError):
        return "another process has the folder open; use a Qdrant server for several processes"
    if isinstance(error, OSError | sqlite3.Error):
        return "check that its disk has space and that this user may write there"
    return "the folder may be damaged; restore a backup of it"


def _is_comparable(payload: Mapping[str, Any], embedder: str) -> bool:
    return payload["embedder"] == embedder and payload.get("format") == PAYLOAD_FORMAT


def _decode_hit(point: Any) -> SearchHit:
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
