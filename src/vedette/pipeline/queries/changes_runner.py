"""Runs the delivery query and reads its progress, without Spark's types in the interface."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from vedette.clock import Clock
from vedette.pipeline.queries.changes import batch_counters, drain_and_stop, start_changes_query
from vedette.pipeline.task import Counters, PipelineConfig

__all__ = ["BatchProgress", "ChangesQueryRunner", "FinishedBatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """The end of the last batch."""

    batch: int
    """Number of the batch; a checkpoint counts from 0."""
    offset: int
    """Journal offset up to which everything is delivered."""
    index_version: int | None
    batch_ms: float | None = None


class FinishedBatch(NamedTuple):
    counters: Counters
    seconds: float


class ChangesQueryRunner:
    """One run of the delivery query, from its start until it is stopped or fails. Not thread-safe."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._last_recorded = -1
        """The last batch that `take_finished_batches` returned."""

    @classmethod
    def start(
        cls, spark: SparkSession, config: PipelineConfig, checkpoint: Path, *, shares: int
    ) -> ChangesQueryRunner:
        return cls(start_changes_query(spark, config, checkpoint, shares=shares))

    @property
    def is_active(self) -> bool:
        return self._query.isActive

    def failure(self) -> str:
        """Return why the query ended; empty if it is active."""
        return str(self._query.exception()) if not self._query.isActive else ""

    def read_progress(self) -> BatchProgress | None:
        """Return the progress of the last batch; None before the first one. Transfers some kB from the JVM."""
        progress: Any = self._query.lastProgress
        if progress is None:
            return None
        end = json.loads(progress["sources"][0]["endOffset"] or "{}")
        return BatchProgress(
            batch=progress["batchId"],
            offset=int(end.get("offset", 0)),
            index_version=end.get("index_version"),
            batch_ms=progress["durationMs"].get("triggerExecution"),
        )

    def take_finished_batches(self, last: BatchProgress) -> list[FinishedBatch]:
        """Return the batches up to `last` that were not returned before.

        Reads all recent progress if there is a new batch, which costs more than reading the last one.
        """
        found: list[FinishedBatch] = []
        if last.batch <= self._last_recorded:
            return found
        for progress in self._query.recentProgress:
            counters = batch_counters(progress)
            if counters is None or progress["batchId"] <= self._last_recorded:
                continue
            self._last_recorded = progress["batchId"]
            seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
            found.append(FinishedBatch(counters, seconds))
        return found

    def stop(self, clock: Clock) -> None:
        """Stop between two batches if there is such a moment soon (`drain_and_stop`)."""
        drain_and_stop(self._query, clock)
