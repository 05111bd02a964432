"""The folder daemon: wiring of the process that `wqm daemon` and `vedette serve` run.

After a failure of the disk or the vector store, everything is closed and opened again with increasing delays.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.clock import SystemClock
from vedette.errors import IngestError, StoreError, VedetteError
from vedette.extras import missing_extra_note, missing_packages
from vedette.processes.supervisor import ChildSpec, RestartBackoff, RestartDelays
from vedette.settings import load_settings

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.processes.logging_setup import LogOptions
    from vedette.processes.signals import StopSignal
    from vedette.search.embedding import Embedder
    from vedette.search.folders.daemon import FolderDaemon
    from vedette.search.folders.worker import BulkIngestor
    from vedette.search.ingestion import VectorIngestor
    from vedette.search.vectors.store import VectorStore
    from vedette.settings import Settings

__all__ = ["folder_daemon_spec", "open_folder_daemon", "run_folder_daemon"]

log = logging.getLogger(__name__)

_POLL_INTERVAL_SECONDS = 0.5
_LEASE = timedelta(minutes=5)
"""A batch of files that takes longer is delivered again."""


@contextmanager
def open_folder_daemon(directory: Path) -> Iterator[FolderDaemon]:
    """Open the daemon with its stores and its socket. The caller runs it."""
    from vedette.engine.data_directory import open_vedette
    from vedette.handshake.tables.handshake_db import FILE_NAME
    from vedette.handshake.tables.settings import HandshakeSettings, open_handshake_tables
    from vedette.search.embedding import create_embedder
    from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue, queue_directory
    from vedette.search.folders.daemon import FolderDaemon
    from vedette.search.folders.daemon_api import DaemonApi, DaemonServer, daemon_socket
    from vedette.search.ingestion import VectorIngestor
    from vedette.search.vectors.background import BackgroundVectorStore
    from vedette.search.vectors.qdrant import open_qdrant_store
    from vedette.sources.files.file_state import FILE_NAME as FILE_STATE_NAME
    from vedette.sources.files.file_state import FileStateStore

    settings, clock = load_settings(directory, os.environ), SystemClock()
    with ExitStack() as stack:
        queue_vedette = stack.enter_context(
            open_vedette(queue_directory(directory), settings=settings, clock=clock)
        )
        tables = stack.enter_context(open_handshake_tables(directory, clock))
        file_states = FileStateStore(directory / FILE_STATE_NAME)
        stack.callback(file_states.close)
        embedder = create_embedder(settings.embedder)
        store = BackgroundVectorStore(lambda: open_qdrant_store(directory, settings))
        stack.callback(store.close)
        queue = stack.enter_context(
            EngineFileQueue(queue_vedette.database(QUEUE_DATABASE), directory / FILE_NAME, lease=_LEASE)
        )
        ingestor = VectorIngestor(embedder, store, clock, max_file_bytes=settings.max_file_bytes)
        bulk = _open_bulk_ingestor(settings, embedder, store, ingestor, clock, stack)
        daemon = FolderDaemon(
            tables,
            file_states,
            queue,
            ingestor,
            store,
            clock,
            worker_id=f"daemon-{os.getpid()}",
            bulk=bulk,
            settings=HandshakeSettings.load(directory),
        )
        api = DaemonApi(daemon, queue, store, embedder)
        stack.enter_context(DaemonServer(daemon_socket(directory), api))
        yield daemon


def _open_bulk_ingestor(
    settings: Settings,
    embedder: Embedder,
    store: VectorStore,
    local_ingestor: VectorIngestor,
    clock: Clock,
    stack: ExitStack,
) -> BulkIngestor | None:
    """Return the Spark ingestor for backlogs, or None without Java, the extra `pipeline`, or if the settings disable
    it.
    """
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if settings.files_on_spark == "never" or not java or missing_packages("pipeline"):
        return None
    from vedette.pipeline.queries.file_batches import (
        FileJobConfig,
        SparkBulkIngestion,
        SparkIngestion,
        SparkPreparation,
    )
    from vedette.pipeline.queries.on_demand_session import BulkThresholds, OnDemandSession
    from vedette.search.chunking import ChunkingConfig
    from vedette.search.ingestion import VectorIngestor

    job_config = FileJobConfig(
        embedder=settings.embedder,
        chunking=ChunkingConfig(),
        max_file_bytes=settings.max_file_bytes,
        qdrant_url=settings.qdrant_url,
    )
    thresholds = BulkThresholds(start_at_files=settings.files_on_spark_from)
    spark = OnDemandSession.at(settings.pipeline_master, clock, thresholds)
    stack.callback(spark.close)
    if settings.qdrant_url:
        return SparkBulkIngestion(spark, SparkIngestion(spark, job_config, local_ingestor, clock))
    preparation = SparkPreparation(spark, job_config, embedder)
    return SparkBulkIngestion(spark, VectorIngestor(embedder, store, clock, preparation=preparation))


def run_folder_daemon(directory: Path, stop: StopSignal, *, started: Callable[[], None]) -> None:
    """Run the daemon until `stop`. Call `started` when the daemon accepts requests.

    A failure of the disk or the vector store before that is raised. Later failures close everything and open it again.
    """
    clock, backoff = SystemClock(), RestartBackoff(RestartDelays(initial_seconds=1.0, max_seconds=30.0))
    has_started = False
    while True:
        opened_at = clock.monotonic()
        try:
            with open_folder_daemon(directory) as daemon:
                if not has_started:
                    started()
                has_started = True
                _run_in_thread(daemon, stop)
            return
        except (StoreError, IngestError) as error:
            # A full disk, for instance: open stores are unusable, and opening them again fails until there is space.
            if not has_started:
                raise
            failure = error
        delay = backoff.next_delay(clock.monotonic() - opened_at)
        log.error(
            "The folder daemon failed and restarts in %.0f s: %s",
            delay,
            failure,
            extra={"action": "daemon.restarting", "data": str(directory)},
        )
        if stop.wait(delay):
            return


def _run_in_thread(daemon: FolderDaemon, stop: StopSignal) -> None:
    """Run the daemon in a thread, so that this thread can wait for the stop request."""
    with ThreadPoolExecutor(1, thread_name_prefix="folder-daemon") as pool:
        running = pool.submit(daemon.run)
        while not running.done() and not stop.wait(_POLL_INTERVAL_SECONDS):
            pass
        daemon.stop()
        running.result()


def folder_daemon_spec(directory: Path, logs: LogOptions) -> ChildSpec:
    """Describe the daemon for a supervisor. It is needed when a folder is watched and no other daemon runs."""
    from vedette.search.folders.daemon_api import connect_daemon

    command = [sys.executable, "-m", "vedette.cli.wqm", "daemon", "--data", str(directory), "--supervised"]
    daemon = connect_daemon(directory)
    missing_extra_logged = False

    def is_needed() -> bool:
        nonlocal missing_extra_logged
        if not _has_folder_watches(directory) or daemon.is_running():
            return False
        problem = missing_extra_note("files")
        if problem and not missing_extra_logged:
            missing_extra_logged = True
            log.warning("%s", problem, extra={"action": "folders.extra_missing"})
        return not problem

    return ChildSpec(
        name="folder daemon",
        command=[*command, *logs.arguments()],
        is_ready=lambda _pid: daemon.is_running(),
        is_needed=is_needed,
        required=False,
    )


def _has_folder_watches(directory: Path) -> bool:
    """False also for a damaged `handshake.db`: `wqm` reports it, and the server continues without folders."""
    from vedette.handshake.config import WatchType
    from vedette.handshake.tables.handshake_db import FILE_NAME
    from vedette.handshake.tables.settings import open_handshake_tables

    if not (directory / FILE_NAME).is_file():
        return False
    try:
        with open_handshake_tables(directory) as tables:
            return any(row.config.watch_type is not WatchType.SOURCE for row in tables.watches())
    except VedetteError:
        return False
