"""The delivery query: STAGES, `fuse`, and `MatchAndDeliver`, the function that Spark runs in each task.

Theory of operation.

    readStream(vedette_journal) ▸ mapInArrow(MatchAndDeliver) ▸ noop

The data source reads a range of the journal in each task. `MatchAndDeliver` passes the rows through the six stages in
one Python process and sends the matches to the gateways. A task ends after every live gateway has accepted its
changes. Spark commits a batch after all its tasks have ended, so delivery is at least once; gateways drop duplicates by
(partition, epoch, seq).

Why the query has this form, measured on two free cores at 1,000 events/s with 10,000 subscriptions
(`benchmarks.pipeline.latency`):

    stages inside `DataSource.read`     p50 52-54 ms, p99 89-95 ms; the plan hides the work
    mapInArrow behind the source        p50 54-55 ms, p99 96-114 ms; chosen
    a Python data sink                  p50 93-96 ms, p99 160-172 ms
    one Spark stage per pipeline stage  230-350 ms per batch, because of the shuffles

These figures used a checkpoint class in Java; docs/design/decisions/0020-no-java-in-the-repository.md has the figures
without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from vedette.pipeline.deduplicate import deduplicate
from vedette.pipeline.deliver import deliver
from vedette.pipeline.match import match
from vedette.pipeline.normalize import normalize
from vedette.pipeline.route import route
from vedette.pipeline.schema import split_range_end
from vedette.pipeline.sequence import sequence
from vedette.pipeline.task import PipelineConfig, Task
from vedette.pipeline.worker_cache import freeze_kept_objects

__all__ = ["STAGES", "MatchAndDeliver", "Stage", "fuse"]

Stage: TypeAlias = Callable[[pa.RecordBatch, Task], pa.RecordBatch]

STAGES: tuple[Stage, ...] = (normalize, deduplicate, sequence, match, route, deliver)


def fuse(stages: Sequence[Stage]) -> Stage:
    """Combine the stages into one, in order."""

    def fused(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:
        for stage in stages:
            batch = stage(batch, task)
        return batch

    return fused


@dataclass(frozen=True)
class MatchAndDeliver:
    """Match and deliver one range of the journal. Spark calls it once per task, with the rows of the range.

    `explain()` and the Spark UI show the name of this class. It returns one row: the counters of the task.
    """

    config: PipelineConfig

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, run, index_version = Task.start(self.config), fuse(STAGES), 0
        for batch in batches:
            changes, range_end = split_range_end(batch)
            if changes.num_rows:
                task.counters.retried_changes += changes.num_rows if task.attempt else 0
                run(changes, task)
            if range_end is not None or task.outbox.is_full:
                task.flush()
            if range_end is not None:
                task.counters.skipped += range_end.skipped_changes
                task.announce(range_end)
                index_version = range_end.index_version
        task.flush()
        yield task.counters.to_batch()
        freeze_kept_objects(index_version)
