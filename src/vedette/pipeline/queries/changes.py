"""The stream itself: journal ranges through the fused stages, checkpointed only after delivery."""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag

from pyspark.sql import SparkSession
from pyspark.sql.functions import collect_list
from pyspark.sql.streaming.query import StreamingQuery

from vedette.clock import Clock, SystemClock
from vedette.pipeline.checkpoint import initial_offset
from vedette.pipeline.queries.delivering_source import COUNTS, telling_source
from vedette.pipeline.queries.query_start import start_query
from vedette.pipeline.task import PipelineConfig

__all__ = ["COUNTS_METRIC", "drain_and_stop", "start_changes_query"]

DRAIN_SECONDS = 10.0
COUNTS_METRIC = "vedette"
"""Under this name the counts of a batch stand in the query's progress: see `telling.sum_of_counts`."""


def start_changes_query(
    session: SparkSession,
    context: PipelineConfig,
    checkpoint: Path,
    *,
    start: int | None = None,
    shares: int = 2,
    max_rows: int = 20_000,
) -> StreamingQuery:
    """Start the query. Its checkpoint moves when all tasks of a batch have ended, and they end when all is accepted.

    `start` counts only for a checkpoint that does not exist yet: an offset of the journal; None is where it ends now.
    """
    source = telling_source(context)
    session.dataSource.register(source)
    options = {
        "journal": context.journal_url,
        "index": str(context.index_folder),
        "registry": context.registry_url,
        "start": str(initial_offset(checkpoint, context.journal_url, start)),
        "shares": str(shares),
        "maxrows": str(max_rows),
    }
    outcomes = session.readStream.format(source.name()).options(**options).load()
    return start_query(
        outcomes.observe(COUNTS_METRIC, collect_list(COUNTS).alias(COUNTS))
        .writeStream.format("noop")
        .queryName(f"vedette {checkpoint.name}")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
    )


def drain_and_stop(query: StreamingQuery, clock: Clock | None = None) -> None:
    """Stop between two batches if there is such a moment soon: a batch that is cut off is delivered again."""
    clock, pause = clock or SystemClock(), Flag()
    end = clock.monotonic() + DRAIN_SECONDS
    while query.isActive and clock.monotonic() < end:
        status = query.status
        if not status["isDataAvailable"] and query.lastProgress is not None:
            break
        pause.wait(0.02)
    query.stop()
