"""The parts of Vedette's folder daemon, wired as in `vedette.processes.folder_daemon`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Thread

from benchmarks.waiting import join_thread
from vedette.clock import SystemClock
from vedette.engine.data_directory import open_vedette
from vedette.handshake.config import CoordinatorConfig, WatchFolderConfig
from vedette.handshake.tables import HandshakeTables
from vedette.pipeline.queries.file_batches import (
    FileJobConfig,
    SparkBulkIngestion,
    SparkPreparation,
)
from vedette.pipeline.queries.on_demand_session import BulkThresholds, OnDemandSession
from vedette.search.chunking import ChunkingConfig
from vedette.search.embedding import Embedder, WordLlamaEmbedder
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue, queue_directory
from vedette.search.folders.daemon import FolderDaemon
from vedette.search.ingestion import VectorIngestor
from vedette.search.vectors.background import BackgroundVectorStore
from vedette.search.vectors.qdrant import QdrantStore
from vedette.sources.files.file_state import FileStateStore

__all__ = ["Parts", "parts", "running"]

WATCH = "bench"
COLLECTION = "bench"
_LARGE_CAPACITY = CoordinatorConfig(total_capacity=1_000_000, max_per_watch=1_000_000)
"""No watch is refused capacity, because the benchmarks measure throughput."""

_STOP_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Parts:
    tables: HandshakeTables
    queue: EngineFileQueue
    store: BackgroundVectorStore
    embedder: Embedder
    file_states: FileStateStore
    daemon: FolderDaemon
    spark_session: OnDemandSession | None


@contextmanager
def parts(data: Path, root: Path, *, spark: bool = False) -> Iterator[Parts]:
    clock = SystemClock()
    data.mkdir(exist_ok=True)
    with ExitStack() as stack:
        queue_vedette = stack.enter_context(open_vedette(queue_directory(data), clock=clock))
        tables = stack.enter_context(
            HandshakeTables(data / "handshake.db", clock=clock, coordinator=_LARGE_CAPACITY)
        )
        if not tables.watches():
            tables.add_watch(WatchFolderConfig(watch_id=WATCH, path=str(root), collection=COLLECTION))
        file_states = FileStateStore(data / "folders.db")
        stack.callback(file_states.close)
        store, embedder = BackgroundVectorStore(lambda: QdrantStore(data / "vectors")), WordLlamaEmbedder()
        stack.callback(store.close)
        queue = stack.enter_context(
            EngineFileQueue(
                queue_vedette.database(QUEUE_DATABASE), data / "handshake.db", lease=timedelta(minutes=5)
            )
        )
        spark_session = OnDemandSession.at("local[2,4]", clock, BulkThresholds()) if spark else None
        bulk = None
        if spark_session is not None:
            stack.callback(spark_session.close)
            job_config = FileJobConfig(
                embedder="wordllama", chunking=ChunkingConfig(), max_file_bytes=20 << 20
            )
            preparation = SparkPreparation(spark_session, job_config, embedder)
            bulk = SparkBulkIngestion(
                spark_session, VectorIngestor(embedder, store, clock, preparation=preparation)
            )
        ingestor = VectorIngestor(embedder, store, clock)
        daemon = FolderDaemon(
            tables, file_states, queue, ingestor, store, clock, worker_id="bench", bulk=bulk
        )
        yield Parts(tables, queue, store, embedder, file_states, daemon, spark_session)


@contextmanager
def running(opened: Parts) -> Iterator[None]:
    thread = Thread(target=opened.daemon.run)
    thread.start()
    try:
        yield
    finally:
        opened.daemon.stop()
        join_thread(thread, "the end of the folder daemon", _STOP_SECONDS)
