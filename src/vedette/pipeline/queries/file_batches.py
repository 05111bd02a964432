"""File batches: prepare files on Spark executors, and store their chunks there or in this process.

    createDataFrame(files) ▸ mapInArrow(ProcessFiles) ▸ toArrow

An executor reads a file, detects its type, extracts its text, and computes chunks and vectors. Where the chunks are
stored depends on which process can reach the store:

    SparkPreparation   vectors in a folder belong to one process, the driver: it collects the results of a job and
                       stores them while the executors work on the next job
    SparkIngestion     a Qdrant server is reachable from every executor, which stores what it prepared; only outcomes
                       return to the driver

A batch that Spark fails to process is processed again in this process. Storing a file twice has the same result as
storing it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vedette.clock import Clock, SystemClock
from vedette.pipeline.queries.on_demand_session import OnDemandSession
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

__all__ = ["FileJobConfig", "SparkBulkIngestion", "SparkIngestion", "SparkPreparation"]

log = logging.getLogger(__name__)

FILES_PER_CALL = 32
"""Files that are prepared together, which bounds the memory of a worker."""
Result = TypeVar("Result")
Request = TypeVar("Request", PrepareRequest, IngestRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJobConfig:
    """How an executor processes a file. Sent with every job."""

    embedder: str
    """Name of the embedder (`vedette.search.embedding.EMBEDDERS`)."""
    chunking: ChunkingConfig
    max_file_bytes: int
    qdrant_url: str = ""
    """Server to which executors store chunks; empty if the driver stores them."""


class SparkPreparation:
    """A `FilePreparer` that prepares files on the executors."""

    def __init__(self, session: OnDemandSession, config: FileJobConfig, embedder: Embedder) -> None:
        """`embedder` is for batches that Spark fails to process."""
        self._session, self._config = session, config
        self._local = LocalPreparer(embedder, chunking=config.chunking, max_file_bytes=config.max_file_bytes)

    def prepare(self, files: Sequence[PrepareRequest]) -> Iterator[PrepareResult]:
        """Yield the results in order. Prepares at most one job ahead of the caller, because results are in memory."""
        thresholds = self._session.thresholds
        jobs = _split_by_size(files, thresholds.batch_bytes, thresholds.job_files)
        with ThreadPoolExecutor(1, thread_name_prefix="vedette-spark-job") as pool:
            running = [pool.submit(self._prepare_job, job) for job in islice(jobs, 1)]
            while running:
                results = running.pop().result()
                running += [pool.submit(self._prepare_job, job) for job in islice(jobs, 1)]
                yield from results

    def _prepare_job(self, files: Sequence[PrepareRequest]) -> list[PrepareResult]:
        return _with_local_fallback(
            partial(self._prepare_on_spark, files), partial(_in_parts, self._local.prepare, files)
        )

    def _prepare_on_spark(self, files: Sequence[PrepareRequest]) -> list[PrepareResult]:
        from vedette.pipeline.queries.file_rows import RESULT_ROWS, decode_prepared, encode_files_to_prepare

        rows = encode_files_to_prepare(files)
        return decode_prepared(self._session.run(rows, ProcessFiles(self._config), RESULT_ROWS), len(files))


class SparkIngestion:
    """A `FileIngestor` whose executors also store the chunks. The job configuration must name the server."""

    def __init__(
        self, session: OnDemandSession, config: FileJobConfig, local: FileIngestor, clock: Clock
    ) -> None:
        """`local` is for batches that Spark fails to process."""
        self._session, self._config, self._local, self._clock = session, config, local, clock

    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        return [
            outcome
            for job in _split_by_size(files, self._session.thresholds.batch_bytes, len(files))
            for outcome in _with_local_fallback(
                partial(self._ingest_on_spark, job), partial(_in_parts, self._local.ingest, job)
            )
        ]

    def _ingest_on_spark(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        from vedette.pipeline.queries.file_rows import RESULT_ROWS, decode_outcomes, encode_files_to_ingest

        rows = encode_files_to_ingest(files)
        results = decode_outcomes(
            self._session.run(rows, ProcessFiles(self._config), RESULT_ROWS), len(files)
        )
        return [self._outcome(file, result) for file, result in zip(files, results, strict=True)]

    def _outcome(
        self, file: IngestRequest, result: tuple[OutcomeStatus, int] | PrepareFailure
    ) -> FileOutcome:
        if isinstance(result, PrepareFailure):
            failure = to_failure(file, result, self._clock)
            return FileOutcome(file=file, status=OutcomeStatus.FAILED, failure=failure)
        status, chunks = result
        return FileOutcome(file=file, status=status, chunks=chunks)


class SparkBulkIngestion:
    """Ingests backlogs of the folder worker (`vedette.search.folders.worker.BulkIngestor`)."""

    def __init__(self, session: OnDemandSession, ingestor: FileIngestor) -> None:
        self._session, self._ingestor = session, ingestor

    def batch_size(self, waiting: int) -> int:
        """Return how many of the waiting files to pass to `ingest`; 0: process them without Spark."""
        return self._session.batch_size(waiting)

    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        return self._ingestor.ingest(files)


def _split_by_size(files: Sequence[Request], max_bytes: int, max_files: int) -> Iterator[Sequence[Request]]:
    """Split into jobs of bounded size, in order. A larger file is a job of its own."""
    job: list[Request] = []
    job_bytes = 0
    for file in files:
        file_bytes = _size(file.path)
        if job and (job_bytes + file_bytes > max_bytes or len(job) == max_files):
            yield job
            job, job_bytes = [], 0
        job.append(file)
        job_bytes += file_bytes
    if job:
        yield job


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def _with_local_fallback(
    on_spark: Callable[[], list[Result]], locally: Callable[[], list[Result]]
) -> list[Result]:
    try:
        return on_spark()
    except (
        Exception
    ) as error:  # Spark, the JVM and lost executors raise many types; the files are not at fault
        extra = {"action": "spark.job_failed"}
        log.warning("Spark failed; the batch is processed without it: %s", error, extra=extra)
        return locally()


def _in_parts(process: Callable[[Sequence[Any]], Iterable[Result]], files: Sequence[Any]) -> list[Result]:
    return [
        result
        for start in range(0, len(files), FILES_PER_CALL)
        for result in process(files[start : start + FILES_PER_CALL])
    ]


# --- on the executors ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """Runs once per Spark task: file rows in, RESULT_ROWS out."""

    config: FileJobConfig

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, FILES_PER_CALL):
                yield self._process(batch.slice(start, FILES_PER_CALL))

    def _process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from vedette.pipeline.queries.file_rows import (
            decode_files_to_ingest,
            decode_files_to_prepare,
            encode_outcomes,
            encode_prepared,
        )

        if self.config.qdrant_url:
            numbers, to_ingest = decode_files_to_ingest(batch)
            return encode_outcomes(numbers, _ingestor(self.config).ingest(to_ingest))
        numbers, to_prepare = decode_files_to_prepare(batch)
        return encode_prepared(numbers, _preparer(self.config).prepare(to_prepare))


@lru_cache(maxsize=4)
def _embedder(name: str) -> Embedder:
    """Kept for the life of the worker, because loading the weights takes longer than a batch."""
    return create_embedder(name)


@lru_cache(maxsize=4)
def _preparer(config: FileJobConfig) -> LocalPreparer:
    return LocalPreparer(
        _embedder(config.embedder), chunking=config.chunking, max_file_bytes=config.max_file_bytes
    )


@lru_cache(maxsize=4)
def _ingestor(config: FileJobConfig) -> VectorIngestor:
    from vedette.search.vectors.qdrant import QdrantStore

    store = QdrantStore(config.qdrant_url)
    return VectorIngestor(_embedder(config.embedder), store, SystemClock(), preparation=_preparer(config))
