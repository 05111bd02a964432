"""The process that watches folders: what `wqm daemon` runs, by itself or as a child of `vedette serve`."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.cli.wqm.access import clock_of, daemon_link, daemon_socket, open_tables, settings_at, vectors_at
from vedette.errors import VedetteError
from vedette.extras import missing_extra_note, missing_packages

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.processes.logging_setup import LogOptions
    from vedette.processes.supervisor import ChildSpec
    from vedette.search.embedding import Embedder
    from vedette.search.folders.daemon import FolderDaemon
    from vedette.search.folders.worker import BulkIngestor
    from vedette.search.ingestion import VectorIngestor
    from vedette.search.vectors.store import VectorStore
    from vedette.settings import Settings

__all__ = ["folder_daemon_spec", "open_folder_daemon"]

log = logging.getLogger(__name__)

_LEASE = timedelta(minutes=5)
"""How long one batch of files may take."""


@contextmanager
def open_folder_daemon(directory: Path, data: str) -> Iterator[FolderDaemon]:
    """The daemon with all that it needs, ready to run; others can ask it for what it holds."""
    from vedette.engine.data_directory import open_vedette
    from vedette.handshake.tables.handshake_db import FILE_NAME
    from vedette.handshake.tables.settings import HandshakeSettings
    from vedette.search.embedding import create_embedder
    from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue, queue_directory
    from vedette.search.folders.daemon import FolderDaemon
    from vedette.search.folders.daemon_api import DaemonApi, DaemonServer
    from vedette.search.ingestion import VectorIngestor
    from vedette.search.vectors.background import BackgroundVectorStore
    from vedette.search.vectors.qdrant import QdrantStore
    from vedette.sources.files.file_state import FILE_NAME as SEEN_NAME
    from vedette.sources.files.file_state import FileStateStore

    settings, clock = settings_at(directory), clock_of()
    with ExitStack() as stack:
        home = stack.enter_context(open_vedette(queue_directory(directory), settings=settings, clock=clock))
        tables = stack.enter_context(open_tables(data))
        seen = FileStateStore(directory / SEEN_NAME)
        stack.callback(seen.close)
        embedder = create_embedder(settings.embedder)
        store = BackgroundVectorStore(lambda: QdrantStore(vectors_at(directory)))
        stack.callback(store.close)
        queue = stack.enter_context(
            EngineFileQueue(home.database(QUEUE_DATABASE), directory / FILE_NAME, lease=_LEASE)
        )
        ingestion = VectorIngestor(embedder, store, clock, max_file_bytes=settings.max_file_bytes)
        bulk = _open_bulk_ingestor(settings, embedder, store, ingestion, clock, stack)
        daemon = FolderDaemon(
            tables,
            seen,
            queue,
            ingestion,
            clock,
            worker_id=f"daemon-{os.getpid()}",
            bulk=bulk,
            tuning=HandshakeSettings.load(directory),
        )
        desk = DaemonApi(store, embedder, daemon.remove_watch)
        stack.enter_context(DaemonServer(daemon_socket(directory), desk))
        yield daemon


def _open_bulk_ingestor(
    settings: Settings,
    embedder: Embedder,
    store: VectorStore,
    here: VectorIngestor,
    clock: Clock,
    stack: ExitStack,
) -> BulkIngestor | None:
    """Spark, for backlogs. None without Java, without the extra `pipeline`, or if the settings disable it."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if settings.files_on_spark == "never" or not java or missing_packages("pipeline"):
        return None
    from vedette.pipeline.queries.file_batches import (
        BulkThresholds,
        FileJobConfig,
        OnDemandSession,
        SparkBulkIngestion,
        SparkIngestion,
        SparkPreparation,
    )
    from vedette.search.chunking import ChunkingConfig
    from vedette.search.ingestion import VectorIngestor

    recipe = FileJobConfig(
        embedder=settings.embedder,
        chunking=ChunkingConfig(),
        max_file_bytes=settings.max_file_bytes,
        qdrant_url=settings.qdrant_url,
    )
    config = BulkThresholds(start_at_files=settings.files_on_spark_from)
    desk = OnDemandSession.at(settings.pipeline_master, clock, config)
    stack.callback(desk.close)
    if settings.qdrant_url:
        return SparkBulkIngestion(desk, SparkIngestion(desk, recipe, here, clock))
    preparation = SparkPreparation(desk, recipe, embedder)
    return SparkBulkIngestion(desk, VectorIngestor(embedder, store, clock, preparation=preparation))


def folder_daemon_spec(data: str, directory: Path, logs: LogOptions) -> ChildSpec:
    """The daemon, for a supervisor: as soon as a folder is watched, unless one runs by itself."""
    from vedette.processes.supervisor import ChildSpec

    command = [sys.executable, "-m", "vedette.cli.wqm", "daemon", "--data", data, "--supervised"]
    command += logs.arguments()
    link = daemon_link(directory)
    reported = False

    def is_wanted() -> bool:
        nonlocal reported
        from vedette.handshake.config import WatchType
        from vedette.handshake.tables.handshake_db import FILE_NAME

        if not (directory / FILE_NAME).is_file():
            return False
        try:
            with open_tables(data) as tables:
                folders = [row for row in tables.watches() if row.config.watch_type is not WatchType.SOURCE]
        except VedetteError:  # damaged, or of a later version: `wqm` says which, and nothing else ends for it
            return False
        if not folders or link.is_running():
            return False
        problem = missing_extra_note("files")
        if problem and not reported:
            reported = True
            log.warning("%s", problem, extra={"action": "folders.extra_missing"})
        return not problem

    return ChildSpec(
        "folder daemon", command, lambda _pid: link.is_running(), required=False, is_needed=is_wanted
    )
