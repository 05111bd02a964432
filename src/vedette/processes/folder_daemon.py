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
    from vedette.processes.supervisor import Child
    from vedette.search.embedding import Embedder
    from vedette.search.folders.daemon import FolderDaemon
    from vedette.search.folders.worker import BulkIngestion
    from vedette.search.ingestion import Ingestion
    from vedette.search.vectors.store import VectorStore
    from vedette.settings import Settings

__all__ = ["folder_child", "open_daemon"]

log = logging.getLogger(__name__)

_LEASE = timedelta(minutes=5)
"""How long one batch of files may take."""


@contextmanager
def open_daemon(directory: Path, data: str) -> Iterator[FolderDaemon]:
    """The daemon with all that it needs, ready to run; others can ask it for what it holds."""
    from vedette.engine.data_directory import open_vedette
    from vedette.handshake.tables.handshake_db import FILE_NAME
    from vedette.handshake.tables.settings import Tuning
    from vedette.search.embedding import embedder_named
    from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue, queue_home
    from vedette.search.folders.daemon import FolderDaemon
    from vedette.search.folders.daemon_api import LinkServer, VectorDesk
    from vedette.search.ingestion import Ingestion
    from vedette.search.vectors.background import OpeningVectors
    from vedette.search.vectors.qdrant import QdrantVectors
    from vedette.sources.files.file_state import FILE_NAME as SEEN_NAME
    from vedette.sources.files.file_state import SeenFiles

    settings, clock = settings_at(directory), clock_of()
    with ExitStack() as stack:
        home = stack.enter_context(open_vedette(queue_home(directory), settings=settings, clock=clock))
        tables = stack.enter_context(open_tables(data))
        seen = SeenFiles(directory / SEEN_NAME)
        stack.callback(seen.close)
        embedder = embedder_named(settings.embedder)
        store = OpeningVectors(lambda: QdrantVectors(vectors_at(directory)))
        stack.callback(store.close)
        queue = stack.enter_context(
            EngineFileQueue(home.database(QUEUE_DATABASE), directory / FILE_NAME, lease=_LEASE)
        )
        ingestion = Ingestion(embedder, store, clock, max_file_bytes=settings.max_file_bytes)
        bulk = _bulk(settings, embedder, store, ingestion, clock, stack)
        daemon = FolderDaemon(
            tables,
            seen,
            queue,
            ingestion,
            clock,
            worker_id=f"daemon-{os.getpid()}",
            bulk=bulk,
            tuning=Tuning.at(directory),
        )
        desk = VectorDesk(store, embedder, daemon.forget)
        stack.enter_context(LinkServer(daemon_socket(directory), desk))
        yield daemon


def _bulk(
    settings: Settings,
    embedder: Embedder,
    store: VectorStore,
    here: Ingestion,
    clock: Clock,
    stack: ExitStack,
) -> BulkIngestion | None:
    """Spark, for backlogs. None without Java, without the extra `pipeline`, or if the settings disable it."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if settings.files_on_spark == "never" or not java or missing_packages("pipeline"):
        return None
    from vedette.pipeline.queries.file_batches import (
        BulkConfig,
        BulkFiles,
        Recipe,
        SparkDesk,
        SparkIngestion,
        SparkPreparation,
    )
    from vedette.search.chunking import ChunkingConfig
    from vedette.search.ingestion import Ingestion

    recipe = Recipe(
        embedder=settings.embedder,
        chunking=ChunkingConfig(),
        max_file_bytes=settings.max_file_bytes,
        qdrant_url=settings.qdrant_url,
    )
    config = BulkConfig(from_files=settings.files_on_spark_from)
    desk = SparkDesk.at(settings.pipeline_master, clock, config)
    stack.callback(desk.close)
    if settings.qdrant_url:
        return BulkFiles(desk, SparkIngestion(desk, recipe, here, clock))
    preparation = SparkPreparation(desk, recipe, embedder)
    return BulkFiles(desk, Ingestion(embedder, store, clock, preparation=preparation))


def folder_child(data: str, directory: Path, logs: LogOptions) -> Child:
    """The daemon, for a supervisor: as soon as a folder is watched, unless one runs by itself."""
    from vedette.processes.supervisor import Child

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
        if not folders or link.is_there():
            return False
        problem = missing_extra_note("files")
        if problem and not reported:
            reported = True
            log.warning("%s", problem, extra={"action": "folders.extra_missing"})
        return not problem

    return Child("folder daemon", command, lambda _pid: link.is_there(), vital=False, wanted=is_wanted)
