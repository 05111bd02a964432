"""Jobs of file batches without Spark: how far they run ahead of the caller, and their rows."""

from __future__ import annotations

from threading import Condition
from typing import Any

from vedette.pipeline.queries.file_batches import FileJobConfig, SparkPreparation
from vedette.pipeline.queries.file_rows import (
    decode_files_to_ingest,
    decode_files_to_prepare,
    encode_files_to_ingest,
    encode_files_to_prepare,
    encode_prepared,
)
from vedette.pipeline.queries.on_demand_session import BulkThresholds
from vedette.search.chunking import ChunkingConfig
from vedette.search.embedding import HashingEmbedder
from vedette.search.ingestion import IngestRequest
from vedette.search.preparation import NothingToStore, PrepareRequest


def test_files_arrive_at_a_worker_unchanged():
    to_prepare = [PrepareRequest(path="/a", stored_hash="h"), PrepareRequest(path="/b")]
    (batch,) = encode_files_to_prepare(to_prepare).to_batches()
    assert decode_files_to_prepare(batch) == ([0, 1], to_prepare)
    to_ingest = [IngestRequest(path="/a", watch_id="w", collection="c", delete=True)]
    (batch,) = encode_files_to_ingest(to_ingest).to_batches()
    assert decode_files_to_ingest(batch) == ([0], to_ingest)


class Executors:
    """An on-demand session that results jobs of two files, and records when each one starts."""

    thresholds = BulkThresholds(job_files=2)

    def __init__(self) -> None:
        self.started: list[int] = []
        self.condition = Condition()

    def run(self, rows: Any, _function: Any, _result: Any) -> Any:
        with self.condition:
            self.started.append(rows.num_rows)
            self.condition.notify_all()
        return encode_prepared(range(rows.num_rows), [NothingToStore.GONE] * rows.num_rows)

    def wait_for(self, jobs: int) -> bool:
        with self.condition:
            return self.condition.wait_for(lambda: len(self.started) >= jobs, 60)


def test_one_job_runs_ahead_of_the_caller() -> None:
    executors = Executors()
    config = FileJobConfig(embedder="hashing", chunking=ChunkingConfig(), max_file_bytes=1_000)
    preparation = SparkPreparation(executors, config, HashingEmbedder())  # type: ignore[arg-type]
    results = preparation.prepare([PrepareRequest(path=f"/{number}") for number in range(7)])
    assert next(results) is NothingToStore.GONE
    assert executors.wait_for(2), "the second job starts before the results of the first are used"
    assert next(results) is NothingToStore.GONE
    assert executors.started == [2, 2], "no more than one job, because results are in memory"
    assert list(results) == [NothingToStore.GONE] * 5
    assert executors.started == [2, 2, 2, 1]
