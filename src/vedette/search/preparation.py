"""Files to chunks with vectors: all of ingest that needs no store, and can be done anywhere the files can be read.

What is known of a file is handed in, what became of it is handed out, and nothing else is touched. So the same code
runs in the process of the daemon and in a worker of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from vedette.errors import IngestError
from vedette.handshake.failures import FailureKind, classify_failure
from vedette.search.chunking import Chunk, ChunkingConfig, split_document
from vedette.search.content_type import detect_content_type
from vedette.search.embedding import Embedder
from vedette.search.extraction import extract
from vedette.search.file_reader import MAX_FILE_BYTES, read_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "FilePreparer",
    "LocalPreparer",
    "NothingToStore",
    "PrepareFailure",
    "PrepareRequest",
    "PrepareResult",
    "PreparedFile",
    "classify_exception",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareRequest:
    path: str
    """Absolute."""
    stored_hash: str | None = None
    """Of the content that is stored already, by the same embedder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFile:
    content_hash: str
    chunks: Sequence[Chunk]
    vectors: NDArray[np.float32]
    """One row per chunk."""


class NothingToStore(StrEnum):
    """Nothing is to be stored, and that is no failure."""

    GONE = "gone"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareFailure:
    """Why there is nothing of a file, and what kind of failure that is."""

    error_type: str
    message: str
    kind: FailureKind


PrepareResult: TypeAlias = PreparedFile | NothingToStore | PrepareFailure


class FilePreparer(Protocol):
    """The usual mistake: to let one file's exception reach the others of its batch."""

    def prepare(self, files: Sequence[PrepareRequest]) -> Iterable[PrepareResult]:
        """In the order of `files`, one for each; the first may be there before the last is begun."""
        ...


_FAILURE_KIND_BY_CODE: Mapping[str, FailureKind] = {
    "E4511": FailureKind.PERMISSION,
    "E4512": FailureKind.DATA,
    "E4513": FailureKind.DATA,
    "E4514": FailureKind.RESOURCE,
    "E4521": FailureKind.SINK,
    "E4522": FailureKind.SINK,
    "E4523": FailureKind.DATA,  # the watch's own collection does not fit; others must not wait for it
}


def classify_exception(error: Exception) -> PrepareFailure:
    code = getattr(error, "code", None)
    error_type = code if isinstance(code, str) else type(error).__name__
    message = getattr(error, "text", None) or str(error) or type(error).__name__
    kind = _FAILURE_KIND_BY_CODE.get(error_type) or classify_failure(type(error).__name__, message)
    return PrepareFailure(error_type=error_type, message=message, kind=kind)


@dataclass(frozen=True, slots=True)
class _ExtractedFile:
    content_hash: str
    chunks: list[Chunk]


class LocalPreparer:
    """In this process."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        chunking: ChunkingConfig | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self._embedder, self._chunking = embedder, chunking or ChunkingConfig()
        self._max_file_bytes = max_file_bytes

    def prepare(self, files: Sequence[PrepareRequest]) -> list[PrepareResult]:
        """All chunks of the batch are embedded together."""
        read = [self._read(file) for file in files]
        texts = [each for each in read if isinstance(each, _ExtractedFile)]
        embedded = iter(self._embedded(texts))
        return [next(embedded) if isinstance(each, _ExtractedFile) else each for each in read]

    def _read(self, file: PrepareRequest) -> _ExtractedFile | NothingToStore | PrepareFailure:
        try:
            read = read_file(file.path, self._max_file_bytes)
            if file.stored_hash == read.content_hash:
                return NothingToStore.UNCHANGED
            document = extract(file.path, read.data, detect_content_type(file.path, read.data))
            return _ExtractedFile(read.content_hash, split_document(document, self._chunking))
        except FileNotFoundError:
            return NothingToStore.GONE
        except Exception as error:  # whatever a file does to its reader, it does to itself alone
            return classify_exception(error)

    def _embedded(self, texts: Sequence[_ExtractedFile]) -> list[PrepareResult]:
        try:
            vectors = self._embedder.embed([chunk.text for each in texts for chunk in each.chunks])
        except IngestError as error:  # the embedder's own: it would refuse each of them
            return [classify_exception(error) for _ in texts]
        except Exception as error:
            if len(texts) == 1:
                return [classify_exception(error)]
            return [readiness for each in texts for readiness in self._embedded([each])]
        prepared: list[PrepareResult] = []
        start = 0
        for each in texts:
            end = start + len(each.chunks)
            prepared.append(
                PreparedFile(content_hash=each.content_hash, chunks=each.chunks, vectors=vectors[start:end])
            )
            start = end
        return prepared
