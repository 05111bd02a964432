"""The delivery query: journal ▸ match and deliver ▸ no sink.

    readStream(vedette_journal) ▸ mapInArrow(MatchAndDeliver) ▸ noop

Delivery happens inside the map (`topology.py`), so there is nothing left for a sink to write. The only rows that leave
the map are the counters of each task. Spark reports them as observed metrics of the batch.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag

from pyspark.sql import SparkSession
from pyspark.sql.functions import collect_list
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from vedette.clock import Clock, SystemClock
from vedette.pipeline.checkpoint import initial_offset
from vedette.pipeline.datasource import JournalDataSource, journal_options
from vedette.pipeline.queries.query_start import start_query
from vedette.pipeline.task import COUNTS_COLUMN, Counters, PipelineConfig
from vedette.pipeline.topology import MatchAndDeliver

__all__ = ["COUNTS_METRIC", "batch_counters", "drain_and_stop", "start_changes_query"]

DRAIN_SECONDS = 10.0
"""Seconds that `drain_and_stop` waits for the end of a batch."""
_POLL_SECONDS = 0.02
QUERY_NAME = "vedette-changes"
COUNTS_METRIC = "vedette"
"""Name of the observed metrics in the progress of the query."""


def start_changes_query(
    spark: SparkSession,
    config: PipelineConfig,
    checkpoint: Path,
    *,
    start: int | None = None,
    shares: int = 2,
    max_rows: int = 20_000,
) -> StreamingQuery:
    """Start the streaming query that delivers each journal change to the gateways that subscribed to it.

    A task ends after every live gateway has accepted its changes, and Spark commits a batch after its tasks: at least
    once. `start` is a journal offset that counts only for a new checkpoint; None starts at the end of the journal.
    """
    spark.dataSource.register(JournalDataSource)
    first = initial_offset(checkpoint, config.journal_url, start)
    changes = (
        spark.readStream.format(JournalDataSource.name())
        .options(**journal_options(config, start=first, shares=shares, max_rows=max_rows))
        .load()
    )
    counts = changes.mapInArrow(MatchAndDeliver(config), f"{COUNTS_COLUMN} STRING")
    # One JSON text per task: Spark plans every observed column again for each batch (p50 46-49 ms; 60 ms with a sum
    # of each of the 14 counters).
    return start_query(
        spark,
        QUERY_NAME,
        counts.observe(COUNTS_METRIC, collect_list(COUNTS_COLUMN).alias(COUNTS_COLUMN))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds"),
    )


def batch_counters(progress: StreamingQueryProgress) -> Counters | None:
    """Return the sum of the counters of all tasks of a batch; None if Spark's progress report has no counters."""
    observed = progress["observedMetrics"].get(COUNTS_METRIC)
    return Counters.sum(observed[COUNTS_COLUMN]) if observed is not None else None


def drain_and_stop(query: StreamingQuery, clock: Clock | None = None) -> None:
    """Stop the query between two batches, or after DRAIN_SECONDS in the middle of one.

    An interrupted batch is delivered again when the query restarts.
    """
    clock, pause = clock or SystemClock(), Flag()
    deadline = clock.monotonic() + DRAIN_SECONDS
    while query.isActive and clock.monotonic() < deadline:
        if not query.status["isDataAvailable"] and query.lastProgress is not None:
            break
        pause.wait(_POLL_SECONDS)
    query.stop()
