"""Batches of files on Spark: read ▸ detect ▸ extract ▸ chunk ▸ embed on the executors, one `mapInArrow` over the tasks.

Where the chunks are stored depends on who can reach the store. Vectors in a folder belong to one process, this one: the
executors' answers are collected here and stored, while the executors are busy with the next job. A Qdrant server can be
reached from anywhere: each executor stores what it prepared, and only outcomes come back.

A job costs some hundred milliseconds before the first file is read, and Spark some seconds before the first job. So
Spark is for backlogs (`BulkThresholds`): few files are done in the daemon's own process, and Spark is not even started
until many wait; nor is Arrow loaded, which a daemon that waits has no use for. What Spark fails to do is done in this
process, from the beginning, which is the same as once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

from vedette.clock import Clock, SystemClock
from vedette.search.chunking import ChunkingConfig
from vedette.search.embedding import Embedder, create_embedder
from vedette.search.ingestion import (
    FileIngestor,
    FileOutcome,
    IngestRequest,
    OutcomeStatus,
    VectorIngestor,
    to_failure,
)
from vedette.search.preparation import LocalPreparer, PrepareFailure, PrepareRequest, PrepareResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = [
    "BulkThresholds",
    "FileJobConfig",
    "OnDemandSession",
    "SparkBulkIngestion",
    "SparkIngestion",
    "SparkPreparation",
]

log = logging.getLogger(__name__)

FILES_PER_CALL = 32
"""Files that a worker prepares, and answers for, together: bounds what it holds."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJobConfig:
    """What an executor must know to prepare a file; it travels with every job."""

    embedder: str
    """By its name (`vedette.search.embedding.EMBEDDERS`)."""
    chunking: ChunkingConfig
    max_file_bytes: int
    qdrant_url: str = ""
    """Where executors store chunks; empty: the driver does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkThresholds:
    """When files are done on Spark. The numbers are measured: docs/design/pipeline.md."""

    start_at_files: int = 1_000
    """So many must wait before Spark is started."""
    min_batch_files: int = 256
    """While it runs it gets every batch that is at least so large."""
    batch_files: int = 512
    """Files in one batch; an edit that comes meanwhile waits for as long as one takes."""
    job_files: int = 256
    """Files in one job, where the answers are stored here: as one is stored, the next is prepared."""
    batch_bytes: int = 64 * 1024 * 1024
    """Of files in one job; a batch of larger ones becomes several jobs."""
    idle_seconds: float = 120.0
    """Without a backlog for so long, Spark is stopped: it holds memory."""
    retry_seconds: float = 300.0
    """After Spark failed, until it is tried again."""


class OnDemandSession:
    """The Spark session of a process: begun when there is work for it, in the background; ended when idle."""

    def __init__(
        self,
        open: Callable[[], SparkSession],
        close: Callable[[SparkSession], object],
        clock: Clock,
        config: BulkThresholds | None = None,
    ) -> None:
        self._open, self._close, self._clock = open, close, clock
        self.config = config or BulkThresholds()
        self._lock = Lock()
        self._session: SparkSession | None = None
        self._opening: Thread | None = None
        self._retry_at, self._last_backlog_at = clock.monotonic(), clock.monotonic()

    @classmethod
    def at(cls, master: str, clock: Clock, config: BulkThresholds | None = None) -> Self:
        """For the sessions of this process on a Spark master."""

        def open() -> SparkSession:
            from vedette.pipeline.session import open_session

            return open_session(master, name="vedette-files", ui=False)

        def close(session: SparkSession) -> None:
            from vedette.pipeline.session import stop_session_and_jvm

            stop_session_and_jvm(session)

        return cls(open, close, clock, config)

    def batch_size(self, waiting: int) -> int:
        """How many files to hand over as one batch when so many wait; 0: do them without. Never waits."""
        now = self._clock.monotonic()
        with self._lock:
            least = self.config.start_at_files if self._session is None else self.config.min_batch_files
            if waiting < least:
                if self._session is not None and now - self._last_backlog_at >= self.config.idle_seconds:
                    self._close_session()
                return 0
            self._last_backlog_at = now
            if self._session is not None:
                return self.config.batch_files
            if self._opening is None and now >= self._retry_at:
                self._opening = Thread(
                    target=self._open_in_background, name="vedette-spark-start", daemon=True
                )
                self._opening.start()
            return 0

    def run(self, rows: pa.Table, recipe: FileJobConfig) -> pa.Table:
        """Answers for all rows. Whatever Spark raises is raised, and the session given up."""
        with self._lock:
            session = self._session
        if session is None:
            raise RuntimeError("Spark has not started")
        try:
            frame = session.createDataFrame(rows).mapInArrow(ProcessFiles(recipe), _schema())
            return frame.toArrow()
        except Exception:
            with self._lock:
                self._retry_at = self._clock.monotonic() + self.config.retry_seconds
                if self._session is session:
                    self._close_session()
            raise

    def close(self) -> None:
        opening = self._opening
        if opening is not None:
            opening.join()
        with self._lock:
            self._close_session()

    def _open_in_background(self) -> None:
        try:
            session: SparkSession | None = self._open()
            log.info("Spark has started for file batches", extra={"action": "spark.started"})
        except Exception as error:
            session = None
            log.warning(
                "Spark does not start; files are processed without it: %s",
                error,
                extra={"action": "spark.failed"},
            )
        with self._lock:
            self._session, self._opening = session, None
            if session is None:
                self._retry_at = self._clock.monotonic() + self.config.retry_seconds

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                self._close(session)
            except Exception as error:  # it may be dead, which is as good
                log.debug("Spark did not stop gracefully: %s", error, extra={"action": "spark.stop_failed"})


class SparkPreparation:
    """`FilePreparer` on the executors; the answers come here."""

    def __init__(self, desk: OnDemandSession, recipe: FileJobConfig, embedder: Embedder) -> None:
        """`embedder`: for what Spark does not do."""
        self._desk, self._recipe = desk, recipe
        self._here = LocalPreparer(embedder, chunking=recipe.chunking, max_file_bytes=recipe.max_file_bytes)

    def prepare(self, files: Sequence[PrepareRequest]) -> Iterator[PrepareResult]:
        """One job ahead of whoever uses the answers, and no more: they are in memory."""
        config = self._desk.config
        jobs = _split_by_size(files, config.batch_bytes, config.job_files)
        with ThreadPoolExecutor(1, thread_name_prefix="vedette-spark-job") as ahead:
            ready = [ahead.submit(self._prepared, part) for part in islice(jobs, 1)]
            while ready:
                answers = ready.pop().result()
                ready += [ahead.submit(self._prepared, part) for part in islice(jobs, 1)]
                yield from answers

    def _prepared(self, files: Sequence[PrepareRequest]) -> list[PrepareResult]:
        from vedette.pipeline.queries.file_rows import decode_prepared, encode_files_to_prepare

        return _with_local_fallback(
            lambda: decode_prepared(self._desk.run(encode_files_to_prepare(files), self._recipe), len(files)),
            lambda: _in_parts(self._here.prepare, files),
        )


class SparkIngestion:
    """`FileIngestor` that leaves also the storing to the executors: the recipe has the URL of the store."""

    def __init__(
        self, desk: OnDemandSession, recipe: FileJobConfig, here: FileIngestor, clock: Clock
    ) -> None:
        """`here`: for what Spark does not do."""
        self._desk, self._recipe, self._here, self._clock = desk, recipe, here, clock

    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        return [
            outcome
            for part in _split_by_size(files, self._desk.config.batch_bytes, len(files))
            for outcome in _with_local_fallback(
                partial(self._ingested, part), partial(_in_parts, self._here.ingest, part)
            )
        ]

    def _ingested(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        from vedette.pipeline.queries.file_rows import decode_outcomes, encode_files_to_ingest

        answers = decode_outcomes(self._desk.run(encode_files_to_ingest(files), self._recipe), len(files))
        return [self._outcome(file, answer) for file, answer in zip(files, answers, strict=True)]

    def _outcome(
        self, file: IngestRequest, answer: tuple[OutcomeStatus, int] | PrepareFailure
    ) -> FileOutcome:
        if isinstance(answer, PrepareFailure):
            failure = to_failure(file, answer, self._clock)
            return FileOutcome(file=file, status=OutcomeStatus.FAILED, failure=failure)
        status, chunks = answer
        return FileOutcome(file=file, status=status, chunks=chunks)


class SparkBulkIngestion:
    """What the drain hands its backlogs to (`vedette.search.folders.worker.BulkIngestor`)."""

    def __init__(self, desk: OnDemandSession, ingestion: FileIngestor) -> None:
        self._desk, self._ingestion = desk, ingestion

    def batch_size(self, waiting: int) -> int:
        return self._desk.batch_size(waiting)

    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        return self._ingestion.ingest(files)


F = TypeVar("F", PrepareRequest, IngestRequest)


def _split_by_size(files: Sequence[F], most_bytes: int, most_files: int) -> Iterator[Sequence[F]]:
    """Parts of a batch, each small enough to be in memory at once."""
    part: list[F] = []
    size = 0
    for file in files:
        bytes_here = _size(file.path)
        if part and (size + bytes_here > most_bytes or len(part) == most_files):
            yield part
            part, size = [], 0
        part.append(file)
        size += bytes_here
    if part:
        yield part


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def _with_local_fallback(there: Callable[[], list[T]], here: Callable[[], list[T]]) -> list[T]:
    try:
        return there()
    except Exception as error:  # of Spark, Java, a dead executor: many kinds, none of them the files' fault
        log.warning(
            "Spark failed; the batch is processed without it: %s",
            error,
            extra={"action": "spark.lost"},
        )
        return here()


def _in_parts(work: Callable[[Sequence[Any]], list[T]], files: Sequence[Any]) -> list[T]:
    return [
        answer
        for start in range(0, len(files), FILES_PER_CALL)
        for answer in work(files[start : start + FILES_PER_CALL])
    ]


# ---- on the executors


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """What `mapInArrow` calls for the rows of one partition."""

    recipe: FileJobConfig

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, FILES_PER_CALL):
                yield self._answers(batch.slice(start, FILES_PER_CALL))

    def _answers(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from vedette.pipeline.queries.file_rows import decode_files, encode_outcomes, encode_prepared

        numbers, files = decode_files(batch)
        if self.recipe.qdrant_url:
            return encode_outcomes(numbers, _ingestion(self.recipe).ingest(files))  # type: ignore[arg-type]
        return encode_prepared(numbers, _preparation(self.recipe).prepare(files))  # type: ignore[arg-type]


@lru_cache(maxsize=4)
def _embedder(name: str) -> Embedder:
    """Once in a worker's life: loading its weights takes longer than a batch."""
    return create_embedder(name)


@lru_cache(maxsize=4)
def _preparation(recipe: FileJobConfig) -> LocalPreparer:
    return LocalPreparer(
        _embedder(recipe.embedder), chunking=recipe.chunking, max_file_bytes=recipe.max_file_bytes
    )


@lru_cache(maxsize=4)
def _ingestion(recipe: FileJobConfig) -> VectorIngestor:
    from vedette.search.vectors.qdrant import QdrantStore

    store = QdrantStore(recipe.qdrant_url)
    return VectorIngestor(_embedder(recipe.embedder), store, SystemClock(), preparation=_preparation(recipe))


def _schema() -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    from vedette.pipeline.queries.file_rows import RESULT_ROWS

    return from_arrow_schema(RESULT_ROWS)
