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
_ROOM = CoordinatorConfig(total_capacity=1_000_000, max_per_watch=1_000_000)
"""No watch is refused capacity, because the benchmarks measure throughput."""

_STOP_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Parts:
    tables: HandshakeTables
    queue: EngineFileQueue
    store: BackgroundVectorStore
    embedder: Embedder
    seen: FileStateStore
    daemon: FolderDaemon
    desk: OnDemandSession | None


@contextmanager
def parts(data: Path, root: Path, *, spark: bool = False) -> Iterator[Parts]:
    clock = SystemClock()
    data.mkdir(exist_ok=True)
    with ExitStack() as stack:
        home = stack.enter_context(open_vedette(queue_directory(data), clock=clock))
        tables = stack.enter_context(HandshakeTables(data / "handshake.db", clock=clock, coordinator=_ROOM))
        if not tables.watches():
            tables.add_watch(WatchFolderConfig(watch_id=WATCH, path=str(root), collection=COLLECTION))
        seen = FileStateStore(data / "folders.db")
        stack.callback(seen.close)
        store, embedder = BackgroundVectorStore(lambda: QdrantStore(data / "vectors")), WordLlamaEmbedder()
        stack.callback(store.close)
        queue = stack.enter_context(
            EngineFileQueue(home.database(QUEUE_DATABASE), data / "handshake.db", lease=timedelta(minutes=5))
        )
        desk = OnDemandSession.at("local[2,4]", clock, BulkThresholds()) if spark else None
        bulk = None
        if desk is not None:
            stack.callback(desk.close)
            recipe = FileJobConfig(embedder="wordllama", chunking=ChunkingConfig(), max_file_bytes=20 << 20)
            preparation = SparkPreparation(desk, recipe, embedder)
            bulk = SparkBulkIngestion(desk, VectorIngestor(embedder, store, clock, preparation=preparation))
        ingestion = VectorIngestor(embedder, store, clock)
        daemon = FolderDaemon(tables, seen, queue, ingestion, store, clock, worker_id="bench", bulk=bulk)
        yield Parts(tables, queue, store, embedder, seen, daemon, desk)


@contextmanager
def running(made: Parts) -> Iterator[None]:
    thread = Thread(target=made.daemon.run)
    thread.start()
    try:
        yield
    finally:
        made.daemon.stop()
        join_thread(thread, "the end of the folder daemon", _STOP_SECONDS)
