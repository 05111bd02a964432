"""A batch of files into the vector store, with an outcome for each. No exception of one file reaches another."""

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
    """Its content is stored already: nothing was embedded."""
    REMOVED = "removed"
    """It is gone, and its chunks with it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    path: str
    """Absolute."""
    watch_id: str
    collection: str
    delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    file: IngestRequest
    status: OutcomeStatus
    chunks: int = 0
    failure: Failure | None = None
    """Of a failed one: what, and whom it is charged to."""


class FileIngestor(Protocol):
    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        """In the order of `files`. What is said to be done is durable."""
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
        """`preparation`: where files become chunks; without, here, with the two options before it."""
        self._embedder, self._store, self._clock = embedder, store, clock
        self._preparation = preparation or LocalPreparer(
            embedder, chunking=chunking, max_file_bytes=max_file_bytes
        )

    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        """In the order of `files`. What is prepared is stored, while others of the batch may still be prepared."""
        try:
            hashes, refused = self._stored_hashes(files)
        except IngestError as error:
            return [self._failed(file, error) for file in files]
        readiness = iter(
            self._preparation.prepare(
                [
                    PrepareRequest(path=file.path, stored_hash=hashes.get((file.collection, file.path)))
                    for file in files
                    if not file.delete and file.collection not in refused
                ]
            )
        )
        outcomes = [
            self._failed(file, refused[file.collection])
            if file.collection in refused
            else self._apply(file, None if file.delete else next(readiness))
            for file in files
        ]
        try:
            self._store.flush()  # before anybody hears that a file is done
        except IngestError as error:
            return [self._failed(file, error) for file in files]
        return outcomes

    def _stored_hashes(
        self, files: Sequence[IngestRequest]
    ) -> tuple[dict[tuple[str, str], str], dict[str, IngestError]]:
        """What is stored of them, by collection and path; and which collections the store refuses, and why.

        E4521 when it cannot be asked.
        """
        by_collection: dict[str, list[str]] = {}
        for file in files:
            if not file.delete:
                by_collection.setdefault(file.collection, []).append(file.path)
        hashes: dict[tuple[str, str], str] = {}
        refused: dict[str, IngestError] = {}
        for collection, paths in by_collection.items():
            try:
                for path, stored in self._store.stored_files(collection, paths).items():
                    if stored.embedder == self._embedder.name:
                        hashes[collection, path] = stored.content_hash
            except IngestError as error:
                if error.code != "E4523":
                    raise
                refused[collection] = error  # the files of other collections must not suffer for it
        return hashes, refused

    def _apply(self, file: IngestRequest, readiness: PrepareResult | None) -> FileOutcome:
        """Store what became of a file; None is for one that is to be deleted."""
        try:
            if readiness is None or readiness is NothingToStore.GONE:
                self._store.remove(file.collection, file.path)
                return FileOutcome(file=file, status=OutcomeStatus.REMOVED)
            if isinstance(readiness, NothingToStore):
                return FileOutcome(file=file, status=OutcomeStatus.UNCHANGED)
            if isinstance(readiness, PrepareFailure):
                if readiness.kind is FailureKind.DATA:
                    # What was stored of the file is of a content that it has no more.
                    self._store.remove(file.collection, file.path)
                return self._unusable(file, readiness)
            return self._replace_chunks(file, readiness)
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
        return self._unusable(file, classify_exception(error))

    def _unusable(self, file: IngestRequest, why: PrepareFailure) -> FileOutcome:
        failure = to_failure(file, why, self._clock)
        return FileOutcome(file=file, status=OutcomeStatus.FAILED, failure=failure)


def to_failure(file: IngestRequest, why: PrepareFailure, clock: Clock) -> Failure:
    return Failure(
        path=file.path, error_type=why.error_type, message=why.message, at=clock.now(), kind=why.kind
    )
