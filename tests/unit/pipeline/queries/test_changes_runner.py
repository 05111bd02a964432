"""Progress of the delivery query: each batch is returned once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql.streaming.query import StreamingQuery

from vedette.pipeline.queries.changes import COUNTS_METRIC
from vedette.pipeline.queries.changes_runner import BatchProgress, ChangesQueryRunner
from vedette.pipeline.task import COUNTS_COLUMN


def progress(batch: int) -> dict[str, Any]:
    return {
        "batchId": batch,
        "observedMetrics": {COUNTS_METRIC: {COUNTS_COLUMN: [f'{{"matches": {batch}}}']}},
        "sources": [{"endOffset": f'{{"format": 2, "offset": {batch * 10}, "index_version": 3}}'}],
        "durationMs": {"triggerExecution": 60},
    }


def test_each_batch_is_returned_once():
    query = SimpleNamespace(lastProgress=None, recentProgress=[], isActive=True)
    runner = ChangesQueryRunner(cast(StreamingQuery, query))
    assert runner.read_progress() is None
    returned = []
    for batches in ((40, 41), (40, 41, 42), (40, 41, 42)):
        query.recentProgress = [progress(batch) for batch in batches]
        query.lastProgress = query.recentProgress[-1]
        last = runner.read_progress()
        assert last == BatchProgress(batch=batches[-1], offset=batches[-1] * 10, index_version=3, batch_ms=60)
        returned += [(found.counters.matches, found.seconds) for found in runner.take_finished_batches(last)]
    assert returned == [(40, 0.06), (41, 0.06), (42, 0.06)]
