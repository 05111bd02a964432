"""File batches on Spark have the same outcomes and chunks as without Spark, also if Spark fails."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.pdf_file import pdf_of
from tests.support.qdrant_server import qdrant_server
from vedette.clock import SystemClock
from vedette.pipeline.queries.file_batches import (
    FileJobConfig,
    SparkIngestion,
    SparkPreparation,
)
from vedette.pipeline.queries.on_demand_session import BulkThresholds, OnDemandSession
from vedette.search.chunking import ChunkingConfig
from vedette.search.embedding import HashingEmbedder
from vedette.search.ingestion import FileOutcome, IngestRequest, VectorIngestor
from vedette.search.preparation import NothingToStore, PreparedFile, PrepareRequest
from vedette.search.vectors.qdrant import QdrantStore
from vedette.search.vectors.store import VectorStore
from vedette.testing.vectors import MemoryVectorStore

EMBEDDER = HashingEmbedder()
CHUNKING = ChunkingConfig(max_characters=200, overlap_characters=40)
MAX_BYTES = 20_000


def job_config(**more: Any) -> FileJobConfig:
    return FileJobConfig(**{"embedder": "hashing", "chunking": CHUNKING, "max_file_bytes": MAX_BYTES, **more})


class Closed:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self, _session: Any) -> None:
        self.times += 1


def open_session(spark: Any, closed: Closed | None = None, **bounds: Any) -> OnDemandSession:
    """An on-demand session over the session of all tests: open at once, and never stopped."""
    config = BulkThresholds(start_at_files=1, min_batch_files=1, **bounds)
    session = OnDemandSession(lambda: spark, closed or Closed(), SystemClock(), config)
    while not session.batch_size(1):
        pass
    return session


@pytest.fixture
def on_spark(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if a batch falls back to this process: the outcomes would be the same."""
    yield
    failed = [r.getMessage() for r in caplog.records if getattr(r, "action", "") == "spark.job_failed"]
    assert not failed


@pytest.fixture
def tree(tmp_path: Path) -> list[IngestRequest]:
    """Files of every kind, and files that fail in every way."""
    root = tmp_path / "tree"
    root.mkdir()
    for number in range(20):
        (root / f"note{number}.md").write_text(f"# Note {number}\n" + "some words, and others\n" * number)
        (root / f"code{number}.py").write_text(f"def f{number}():\n    return {number}\n" * (number + 1))
    (root / "paper.pdf").write_bytes(pdf_of(["a page of text", "another"]))
    (root / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    (root / "picture.txt").write_bytes(b"\x89PNG\r\n\x00\x00\x00")
    (root / "large.txt").write_text("x" * (MAX_BYTES + 1))
    (root / "empty.txt").write_text("")
    os.mkfifo(root / "pipe")
    names = [*sorted(path.name for path in root.iterdir()), "gone.txt"]
    files = [IngestRequest(path=f"{root}/{name}", watch_id="w", collection="docs") for name in names]
    return [*files, IngestRequest(path=f"{root}/deleted.md", watch_id="w", collection="docs", delete=True)]


def seen(outcomes: Sequence[FileOutcome]) -> list[Any]:
    return [
        (each.file, each.status, each.chunks, each.failure and (each.failure.error_type, each.failure.kind))
        for each in outcomes
    ]


def contents(store: VectorStore, files: Sequence[IngestRequest]) -> Any:
    everything = store.search("docs", EMBEDDER.embed(["words"])[0], EMBEDDER.name, 10_000)
    chunks = sorted((hit.path, hit.start, hit.end, hit.title, hit.text) for hit in everything)
    return chunks, store.stored_files("docs", [file.path for file in files])


def clean(files: Sequence[IngestRequest]) -> tuple[list[Any], Any]:
    """Outcomes and stored chunks without Spark."""
    store = MemoryVectorStore()
    ingestion = VectorIngestor(EMBEDDER, store, SystemClock(), chunking=CHUNKING, max_file_bytes=MAX_BYTES)
    return seen(ingestion.ingest(files)), contents(store, files)


def test_files_are_prepared_on_the_executors_and_stored_by_the_driver(
    spark: Any, tree: list[IngestRequest], on_spark: None
) -> None:
    store = MemoryVectorStore()
    preparation = SparkPreparation(
        open_session(spark, batch_bytes=30_000, job_files=16), job_config(), EMBEDDER
    )
    ingestion = VectorIngestor(EMBEDDER, store, SystemClock(), preparation=preparation)
    outcomes = ingestion.ingest(tree)
    assert (seen(outcomes), contents(store, tree)) == clean(tree)
    again = {outcome.status for outcome in ingestion.ingest(tree) if outcome.failure is None}
    assert again == {"unchanged", "removed", "ingested"}, "only the file without text is ingested again"
    assert ingestion.ingest([]) == []


def test_files_are_stored_by_the_executors_on_a_server(
    spark: Any, tree: list[IngestRequest], on_spark: None
) -> None:
    with qdrant_server() as (url, server):
        store = QdrantStore(url)
        here = VectorIngestor(EMBEDDER, store, SystemClock())
        ingestion = SparkIngestion(open_session(spark), job_config(qdrant_url=url), here, SystemClock())
        assert (seen(ingestion.ingest(tree)), contents(store, tree)) == clean(tree)
        server.requests.clear()
        (outcome,) = ingestion.ingest([file for file in tree if file.path.endswith("note9.md")])
        assert outcome.status == "unchanged"
        assert not [each for each in server.requests if each.endswith("/points/batch")]
        server.is_down = True
        kinds = {outcome.failure and outcome.failure.kind for outcome in ingestion.ingest(tree[:3])}
        assert kinds == {"sink"}, "an outage of the store is not the fault of a file"
        store.close()


def test_unchanged_content_is_not_embedded(spark: Any, tmp_path: Path, on_spark: None) -> None:
    path = tmp_path / "a.txt"
    path.write_text("words")
    preparation = SparkPreparation(open_session(spark), job_config(), EMBEDDER)
    (first,) = preparation.prepare([PrepareRequest(path=str(path))])
    assert isinstance(first, PreparedFile)
    (second,) = preparation.prepare([PrepareRequest(path=str(path), stored_hash=first.content_hash)])
    assert second is NothingToStore.UNCHANGED


def test_a_batch_that_fails_on_spark_is_processed_locally(spark: Any, tree: list[IngestRequest]) -> None:
    closed, store = Closed(), MemoryVectorStore()
    session = open_session(spark, closed)
    broken = job_config(embedder="no such embedder")  # every task of the job fails
    ingestion = VectorIngestor(
        EMBEDDER, store, SystemClock(), preparation=SparkPreparation(session, broken, EMBEDDER)
    )
    assert (seen(ingestion.ingest(tree)), contents(store, tree)) == clean(tree)
    assert closed.times == 1
    assert session.batch_size(1_000_000) == 0, "a failed session is not opened again at once"
