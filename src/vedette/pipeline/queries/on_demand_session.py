"""A Spark session that opens when there is a backlog and closes when it is idle.

A Spark job costs some hundred milliseconds before it reads the first file, and a session takes seconds to open. So
Spark is for backlogs: the daemon processes a few files in its own process, and opens a session in the background only
when many files wait. This module imports neither pyspark nor Arrow until a session opens, because an idle daemon has
no use for their memory.

    closed ── many files wait ──▶ opening ──▶ open ── idle_seconds without a backlog ──▶ closed
    opening, open ── a failure ──▶ closed for retry_seconds
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self

from vedette.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["BulkThresholds", "OnDemandSession"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkThresholds:
    """When files are processed on Spark. docs/design/pipeline.md has the measurements."""

    start_at_files: int = 1_000
    """Waiting files at which a session is opened."""
    min_batch_files: int = 256
    """Waiting files at which an open session receives a batch."""
    batch_files: int = 512
    """Files in one batch. A file that changes meanwhile waits until the batch ends."""
    job_files: int = 256
    """Files in one job, if the driver stores the results: it stores one job while the next is prepared."""
    batch_bytes: int = 64 * 1024 * 1024
    """Total size of the files in one job. A batch of larger files becomes several jobs."""
    idle_seconds: float = 120.0
    """Seconds without a backlog after which the session is closed, because it holds memory."""
    retry_seconds: float = 300.0
    """Seconds after a failure of Spark until the next attempt."""


class OnDemandSession:
    """The Spark session of a process. Thread-safe."""

    def __init__(
        self,
        open: Callable[[], SparkSession],
        close: Callable[[SparkSession], object],
        clock: Clock,
        thresholds: BulkThresholds | None = None,
    ) -> None:
        self._open, self._close, self._clock = open, close, clock
        self.thresholds = thresholds or BulkThresholds()
        self._lock = Lock()
        self._session: SparkSession | None = None
        self._opening: Thread | None = None
        self._retry_at = self._last_backlog_at = clock.monotonic()

    @classmethod
    def at(cls, master: str, clock: Clock, thresholds: BulkThresholds | None = None) -> Self:
        """Return the on-demand session of this process on a Spark master."""

        def open() -> SparkSession:
            from vedette.pipeline.session import open_session

            return open_session(master, name="vedette-files", ui=False)

        def close(session: SparkSession) -> None:
            from vedette.pipeline.session import stop_session_and_jvm

            stop_session_and_jvm(session)

        return cls(open, close, clock, thresholds)

    def batch_size(self, waiting: int) -> int:
        """Return how many of the waiting files to process as one batch on Spark; 0: process them without Spark.

        Never blocks. Opens a session in the background, or closes an idle one.
        """
        now = self._clock.monotonic()
        with self._lock:
            is_open = self._session is not None
            needed = self.thresholds.min_batch_files if is_open else self.thresholds.start_at_files
            if waiting < needed:
                if is_open and now - self._last_backlog_at >= self.thresholds.idle_seconds:
                    self._close_session()
                return 0
            self._last_backlog_at = now
            if is_open:
                return self.thresholds.batch_files
            if self._opening is None and now >= self._retry_at:
                self._opening = Thread(
                    target=self._open_in_background, name="vedette-spark-start", daemon=True
                )
                self._opening.start()
            return 0

    def run(
        self,
        rows: pa.Table,
        function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        result: pa.Schema,
    ) -> pa.Table:
        """Map rows with `function` on the executors, and collect the results.

        If Spark raises, the session is closed, and the exception is raised again.
        """
        with self._lock:
            session = self._session
        if session is None:
            raise RuntimeError("Spark has not started")
        try:
            from pyspark.sql.pandas.types import from_arrow_schema

            frame: Any = session.createDataFrame(rows)
            return frame.mapInArrow(function, from_arrow_schema(result)).toArrow()
        except Exception:
            with self._lock:
                self._retry_at = self._clock.monotonic() + self.thresholds.retry_seconds
                if self._session is session:
                    self._close_session()
            raise

    def close(self) -> None:
        """Close the session. Waits for a session that is being opened."""
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
            extra = {"action": "spark.start_failed"}
            log.warning("Spark does not start; files are processed without it: %s", error, extra=extra)
        with self._lock:
            self._session, self._opening = session, None
            if session is None:
                self._retry_at = self._clock.monotonic() + self.thresholds.retry_seconds

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                self._close(session)
            except Exception as error:  # the JVM may be dead already
                log.debug("Spark did not stop gracefully: %s", error, extra={"action": "spark.stop_failed"})
