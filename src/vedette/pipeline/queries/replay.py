"""Replay: match the changes of a capture against the index of the capture.

    Parquet of a capture ▸ dropDuplicates ▸ repartition by partition ▸ sortWithinPartitions ▸ mapInArrow(MatchCapture)
        ▸ Parquet

A capture may consist of several pieces, so Spark removes duplicates and restores the order here. In the stream the
journal guarantees both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from vedette.clock import SystemClock
from vedette.pipeline.match import match
from vedette.pipeline.normalize import normalize
from vedette.pipeline.queries.capture import restore_index
from vedette.pipeline.schema import CHANGE_ROWS, spark_schema
from vedette.pipeline.sequence import sequence
from vedette.pipeline.task import PipelineConfig, Task
from vedette.pipeline.topology import fuse
from vedette.subscriptions.index.versions import latest_version

__all__ = ["MATCHES", "MatchCapture", "replay"]

MATCHES = pa.schema(
    [
        ("offset", pa.int64()),
        ("subscription", pa.int64()),
        ("reason", pa.string()),  # enter, update or leave
        ("gateway", pa.int32()),
        ("batch_ms", pa.float64()),  # time to match the Arrow batch that contains the change
    ]
)
"""The output: one row per change and matching subscription."""


def replay(spark: SparkSession, capture: str, out: str) -> None:
    """Match a capture against its index and write the matches as Parquet."""
    with tempfile.TemporaryDirectory(prefix="vedette-replay-") as folder:
        index = Path(folder)
        restore_index(spark, capture, index)
        config = PipelineConfig(journal_url="", registry_url="", index_folder=index)
        changes = (
            spark.read.parquet(f"{capture}/changes")
            .select(*CHANGE_ROWS.names)
            .dropDuplicates(["source", "event_id"])
            .repartition("partition")
            .sortWithinPartitions("partition", "epoch", "seq")
        )
        matches = changes.mapInArrow(MatchCapture(config, latest_version(index)), spark_schema(MATCHES))
        matches.write.mode("overwrite").parquet(out)


@dataclass(frozen=True)
class MatchCapture:
    """Runs once per Spark task: changes in, MATCHES out."""

    config: PipelineConfig
    index_version: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, run, clock = Task.start(self.config), fuse((normalize, sequence, match)), SystemClock()
        for batch in batches:
            pinned = batch.set_column(
                batch.schema.get_field_index("version"),
                CHANGE_ROWS.field("version"),
                pa.array([self.index_version] * batch.num_rows, pa.int64()),
            )
            start = clock.monotonic()
            deliveries = run(pinned, task).to_pylist()
            batch_ms = (clock.monotonic() - start) * 1000
            rows = [
                {
                    "offset": row["offset"],
                    "subscription": number,
                    "reason": reason,
                    "gateway": row["gateway"],
                    "batch_ms": batch_ms,
                }
                for row in deliveries
                for reason in ("enter", "update", "leave")
                for number in row[reason]
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=MATCHES)
