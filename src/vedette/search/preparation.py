"""Prepare a batch of files: read, detect the type, extract the text, split it into chunks, embed them.

Preparation needs the files and an embedder, but no vector store. So the same code runs in the folder daemon and on
Spark executors.
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
    """Hash of the content whose chunks are stored, if the same embedder made them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFile:
    content_hash: str
    chunks: Sequence[Chunk]
    vectors: NDArray[np.float32]
    """One row per chunk."""


class NothingToStore(StrEnum):
    """Why a file needs no chunks to be stored, without being a failure."""

    GONE = "gone"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareFailure:
    """Why a file could not be prepared."""

    error_type: str
    """An error code such as `E4512`, or the name of an exception class."""
    message: str
    kind: FailureKind


PrepareResult: TypeAlias = PreparedFile | NothingToStore | PrepareFailure


class FilePreparer(Protocol):
    """The usual mistake of an implementation: an exception of one file fails the other files of the batch."""

    def prepare(self, files: Sequence[PrepareRequest]) -> Iterable[PrepareResult]:
        """Return one result per file, in the order of `files`. The iterable may yield results before all are ready."""
        ...


_FAILURE_KIND_BY_CODE: Mapping[str, FailureKind] = {
    "E4511": FailureKind.PERMISSION,
    "E4512": FailureKind.DATA,
    "E4513": FailureKind.DATA,
    "E4514": FailureKind.RESOURCE,
    "E4521": FailureKind.SINK,
    "E4522": FailureKind.SINK,
    "E4523": FailureKind.DATA,  # concerns one collection; the sink works for the others
}


def classify_exception(error: Exception) -> PrepareFailure:
    """Determine the kind of a failure by its error code, or else by class and text of the exception."""
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
    """Prepares files in this process."""

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
        """The chunks of all files are embedded together."""
        extracted = [self._extract(file) for file in files]
        prepared = iter(self._embed([file for file in extracted if isinstance(file, _ExtractedFile)]))
        return [next(prepared) if isinstance(file, _ExtractedFile) else file for file in extracted]

    def _extract(self, file: PrepareRequest) -> _ExtractedFile | NothingToStore | PrepareFailure:
        try:
            content = read_file(file.path, self._max_file_bytes)
            if file.stored_hash == content.content_hash:
                return NothingToStore.UNCHANGED
            document = extract(file.path, content.data, detect_content_type(file.path, content.data))
            return _ExtractedFile(content.content_hash, split_document(document, self._chunking))
        except FileNotFoundError:
            return NothingToStore.GONE
        except Exception as error:  # a damaged file can raise anything; the others continue
            return classify_exception(error)

    def _embed(self, files: Sequence[_ExtractedFile]) -> list[PrepareResult]:
        try:
            vectors = self._embedder.embed([chunk.text for file in files for chunk in file.chunks])
        except IngestError as error:  # the embedder is unavailable: it would fail for each file
            return [classify_exception(error) for _ in files]
        except (
            Exception
        ) as error:  # a text that the embedder cannot process: find the file by embedding one by one
            if len(files) == 1:
                return [classify_exception(error)]
            return [result for file in files for result in self._embed([file])]
        prepared: list[PrepareResult] = []
        start = 0
        for file in files:
            end = start + len(file.chunks)
            prepared.append(
                PreparedFile(content_hash=file.content_hash, chunks=file.chunks, vectors=vectors[start:end])
            )
            start = end
        return prepared
