"""Ingest a batch of files: prepare them, replace their chunks in the vector store, and return an outcome per file.

A file that fails does not affect the other files of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from vedette.clock import Clock
from vedette.errors import IngestError
from vedette.handshake.failures import Failure, FailureKind
from vedette.search.chunking import ChunkingConfig
from vedette.search.embedding import Embedder
from vedette.search.file_reader import MAX_FILE_BYTES
from vedette.search.preparation import (
    FilePreparer,
    LocalPreparer,
    NothingToStore,
    PreparedFile,
    PrepareFailure,
    PrepareRequest,
    PrepareResult,
    classify_exception,
)
from vedette.search.vectors.store import FileVectors, VectorStore

__all__ = ["FileIngestor", "FileOutcome", "IngestRequest", "OutcomeStatus", "VectorIngestor", "to_failure"]


class OutcomeStatus(StrEnum):
    INGESTED = "ingested"
    UNCHANGED = "unchanged"
    """The store has chunks of the same content already; nothing was embedded or written."""
    REMOVED = "removed"
    """The file does not exist or was to be deleted; its chunks were removed."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    path: str
    """Absolute."""
    watch_id: str
    collection: str
    delete: bool = False
    """True to remove the file's chunks without reading the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    file: IngestRequest
    status: OutcomeStatus
    chunks: int = 0
    failure: Failure | None = None
    """Set if `status` is FAILED."""


class FileIngestor(Protocol):
    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        """Return the outcomes in the order of `files`. The effect of every outcome except FAILED is durable."""
        ...


class VectorIngestor:
    def __init__(
        self,
        embedder: Embedder,
        store: VectorStore,
        clock: Clock,
        *,
        chunking: ChunkingConfig | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
        preparation: FilePreparer | None = None,
    ) -> None:
        """Without `preparation`, files are prepared in this process, with `chunking` and `max_file_bytes`."""
        self._embedder, self._store, self._clock = embedder, store, clock
        self._preparation = preparation or LocalPreparer(
            embedder, chunking=chunking, max_file_bytes=max_file_bytes
        )

    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        """A prepared file is stored while the preparation of later files may still be running."""
        try:
            hashes, rejected = self._stored_hashes(files)
        except IngestError as error:
            return [self._failed(file, error) for file in files]
        results = iter(
            self._preparation.prepare(
                [
                    PrepareRequest(path=file.path, stored_hash=hashes.get((file.collection, file.path)))
                    for file in files
                    if not file.delete and file.collection not in rejected
                ]
            )
        )
        outcomes = [
            self._failed(file, rejected[file.collection])
            if file.collection in rejected
            else self._apply(file, None if file.delete else next(results))
            for file in files
        ]
        try:
            self._store.flush()  # a file must be durable before its outcome is returned
        except IngestError as error:
            return [self._failed(file, error) for file in files]
        return outcomes

    def _stored_hashes(
        self, files: Sequence[IngestRequest]
    ) -> tuple[dict[tuple[str, str], str], dict[str, IngestError]]:
        """Return the hashes of stored contents by collection and path, and the collections that the store rejects.

        Files to be deleted are left out. Raises E4521 if the store cannot be reached.
        """
        by_collection: dict[str, list[str]] = {}
        for file in files:
            if not file.delete:
                by_collection.setdefault(file.collection, []).append(file.path)
        hashes: dict[tuple[str, str], str] = {}
        rejected: dict[str, IngestError] = {}
        for collection, paths in by_collection.items():
            try:
                for path, stored in self._store.stored_files(collection, paths).items():
                    if stored.embedder == self._embedder.name:
                        hashes[collection, path] = stored.content_hash
            except IngestError as error:
                if error.code != "E4523":
                    raise
                rejected[collection] = error  # the files of other collections can be ingested
        return hashes, rejected

    def _apply(self, file: IngestRequest, result: PrepareResult | None) -> FileOutcome:
        """Store the result of the preparation. A result of None means that the file is to be deleted."""
        try:
            if result is None or result is NothingToStore.GONE:
                self._store.remove(file.collection, file.path)
                return FileOutcome(file=file, status=OutcomeStatus.REMOVED)
            if isinstance(result, NothingToStore):
                return FileOutcome(file=file, status=OutcomeStatus.UNCHANGED)
            if isinstance(result, PrepareFailure):
                if result.kind is FailureKind.DATA:
                    # The stored chunks belong to a content that the file no longer has.
                    self._store.remove(file.collection, file.path)
                return self._failure_outcome(file, result)
            return self._replace_chunks(file, result)
        except Exception as error:
            return self._failed(file, error)

    def _replace_chunks(self, file: IngestRequest, prepared: PreparedFile) -> FileOutcome:
        self._store.ensure_collection(file.collection, self._embedder.dimensions)
        if not prepared.chunks:
            self._store.remove(file.collection, file.path)
            return FileOutcome(file=file, status=OutcomeStatus.INGESTED)
        self._store.replace(
            file.collection,
            FileVectors(
                path=file.path,
                watch_id=file.watch_id,
                content_hash=prepared.content_hash,
                embedder=self._embedder.name,
                chunks=prepared.chunks,
                vectors=prepared.vectors,
            ),
        )
        return FileOutcome(file=file, status=OutcomeStatus.INGESTED, chunks=len(prepared.chunks))

    def _failed(self, file: IngestRequest, error: Exception) -> FileOutcome:
        return self._failure_outcome(file, classify_exception(error))

    def _failure_outcome(self, file: IngestRequest, cause: PrepareFailure) -> FileOutcome:
        failure = to_failure(file, cause, self._clock)
        return FileOutcome(file=file, status=OutcomeStatus.FAILED, failure=failure)


def to_failure(file: IngestRequest, cause: PrepareFailure, clock: Clock) -> Failure:
    return Failure(
        path=file.path, error_type=cause.error_type, message=cause.message, at=clock.now(), kind=cause.kind
    )
