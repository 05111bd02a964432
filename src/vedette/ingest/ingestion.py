"""A batch of files into the vector store, with an outcome for each. No exception of one file reaches another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from vedette.clock import Clock
from vedette.errors import IngestError
from vedette.handshake.failures import Failure, FailureKind, kind_of
from vedette.ingest.chunking import Chunk, ChunkingConfig, chunks_of
from vedette.ingest.detection import detect_type
from vedette.ingest.embedding import Embedder
from vedette.ingest.extraction import extract
from vedette.ingest.reading import MAX_FILE_BYTES, ReadFile, read_file
from vedette.ingest.vectors import FileVectors, VectorStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FileOutcome", "FileToIngest", "Ingestion", "OutcomeStatus"]


class OutcomeStatus(StrEnum):
    INGESTED = "ingested"
    UNCHANGED = "unchanged"
    """Its content is stored already: nothing was embedded."""
    REMOVED = "removed"
    """It is gone, and its chunks with it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToIngest:
    path: str
    """Absolute."""
    watch_id: str
    collection: str
    delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    file: FileToIngest
    status: OutcomeStatus
    chunks: int = 0
    failure: Failure | None = None
    """Of a failed one: what, and whom it is charged to."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    file: FileToIngest
    content_hash: str
    chunks: list[Chunk]


_KINDS = {
    "E4511": FailureKind.PERMISSION,
    "E4512": FailureKind.DATA,
    "E4513": FailureKind.DATA,
    "E4514": FailureKind.RESOURCE,
    "E4521": FailureKind.SINK,
    "E4522": FailureKind.SINK,
    "E4523": FailureKind.DATA,  # the watch's own collection does not fit; others must not wait for it
}


class Ingestion:
    def __init__(
        self,
        embedder: Embedder,
        store: VectorStore,
        clock: Clock,
        *,
        chunking: ChunkingConfig | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self._embedder, self._store, self._clock = embedder, store, clock
        self._chunking, self._max_file_bytes = chunking or ChunkingConfig(), max_file_bytes

    def ingest(self, files: Sequence[FileToIngest]) -> list[FileOutcome]:
        """In the order of `files`. All chunks of the batch are embedded together."""
        outcomes: dict[int, FileOutcome] = {}
        prepared: dict[int, _Prepared] = {}
        hashes = self._hashes(files)
        for number, file in enumerate(files):
            read = self._prepared(file, hashes)
            if isinstance(read, _Prepared):
                prepared[number] = read
            else:
                outcomes[number] = read
        outcomes.update(self._stored(prepared))
        try:
            self._store.flush()  # before anybody hears that a file is done
        except IngestError as error:
            return [self._failed(file, error) for file in files]
        return [outcomes[number] for number in range(len(files))]

    def _hashes(self, files: Sequence[FileToIngest]) -> dict[tuple[str, str], str] | Exception:
        """What is stored of them, by collection and path; or why that cannot be said."""
        by_collection: dict[str, list[str]] = {}
        for file in files:
            if not file.delete:
                by_collection.setdefault(file.collection, []).append(file.path)
        found: dict[tuple[str, str], str] = {}
        try:
            for collection, paths in by_collection.items():
                for path, stored in self._store.stored(collection, paths).items():
                    if stored.embedder == self._embedder.name:
                        found[collection, path] = stored.content_hash
        except IngestError as error:
            return error
        return found

    def _prepared(
        self, file: FileToIngest, hashes: dict[tuple[str, str], str] | Exception
    ) -> _Prepared | FileOutcome:
        try:
            if isinstance(hashes, Exception):
                raise hashes
            if file.delete:
                return self._removed(file)
            try:
                read = read_file(file.path, self._max_file_bytes)
            except FileNotFoundError:
                return self._removed(file)
            if hashes.get((file.collection, file.path)) == read.content_hash:
                return FileOutcome(file=file, status=OutcomeStatus.UNCHANGED)
            return _Prepared(file, read.content_hash, self._chunks(file.path, read))
        except Exception as error:  # whatever a file does to its reader, it does to itself alone
            failed = self._failed(file, error)
            return self._without_chunks(failed) if _is_useless(failed) else failed

    def _without_chunks(self, failed: FileOutcome) -> FileOutcome:
        """What was stored of the file is of a content that it has no more."""
        try:
            self._store.remove(failed.file.collection, failed.file.path)
        except Exception as error:
            return self._failed(failed.file, error)
        return failed

    def _chunks(self, path: str, read: ReadFile) -> list[Chunk]:
        return chunks_of(extract(path, read.data, detect_type(path, read.data)), self._chunking)

    def _removed(self, file: FileToIngest) -> FileOutcome:
        self._store.remove(file.collection, file.path)
        return FileOutcome(file=file, status=OutcomeStatus.REMOVED)

    def _stored(self, prepared: dict[int, _Prepared]) -> dict[int, FileOutcome]:
        try:
            texts = [chunk.text for each in prepared.values() for chunk in each.chunks]
            vectors = self._embedder.embed(texts)
        except Exception as error:
            return {number: self._failed(each.file, error) for number, each in prepared.items()}
        outcomes: dict[int, FileOutcome] = {}
        start = 0
        for number, each in prepared.items():
            end = start + len(each.chunks)
            outcomes[number] = self._replaced(each, vectors[start:end])
            start = end
        return outcomes

    def _replaced(self, each: _Prepared, vectors: NDArray[np.float32]) -> FileOutcome:
        file = each.file
        try:
            self._store.prepare(file.collection, self._embedder.dimensions)
            if not each.chunks:
                self._store.remove(file.collection, file.path)
                return FileOutcome(file=file, status=OutcomeStatus.INGESTED)
            self._store.replace(
                file.collection,
                FileVectors(
                    path=file.path,
                    watch_id=file.watch_id,
                    content_hash=each.content_hash,
                    embedder=self._embedder.name,
                    chunks=each.chunks,
                    vectors=vectors,
                ),
            )
        except Exception as error:
            return self._failed(file, error)
        return FileOutcome(file=file, status=OutcomeStatus.INGESTED, chunks=len(each.chunks))

    def _failed(self, file: FileToIngest, error: Exception) -> FileOutcome:
        code = getattr(error, "code", None)
        error_type = code if isinstance(code, str) else type(error).__name__
        message = getattr(error, "text", None) or str(error) or type(error).__name__
        kind = _KINDS.get(error_type) or kind_of(type(error).__name__, message)
        return FileOutcome(
            file=file,
            status=OutcomeStatus.FAILED,
            failure=Failure(
                path=file.path, error_type=error_type, message=message, at=self._clock.now(), kind=kind
            ),
        )


def _is_useless(outcome: FileOutcome) -> bool:
    return outcome.failure is not None and outcome.failure.kind is FailureKind.DATA
