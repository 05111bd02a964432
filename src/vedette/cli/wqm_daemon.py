"""`wqm daemon`: watch the folders, until told to stop."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm_place import clock_of, directory_at, open_tables, open_vectors, settings_at

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.ingest.daemon import FolderDaemon

__all__ = ["daemon"]

_LEASE = timedelta(minutes=5)
"""How long one batch of files may take."""
_LOOK_SECONDS = 0.5


def daemon(data: DataOption = DEFAULT_DATA) -> None:
    """Watch the folders and take up what changes, in the foreground, until Ctrl-C or SIGTERM.

    \b
    Examples:
      wqm watch add ~/notes --collection notes
      wqm daemon
    """
    from vedette.cli.stopping import StopSignal

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("vedette").setLevel(logging.INFO)
    directory = directory_at(data)
    with ExitStack() as stack, StopSignal() as stop:
        made = _made(directory, data, stack)
        print(f"Watching the folders of {directory}. Ctrl-C ends it.", flush=True)
        with ThreadPoolExecutor(1, thread_name_prefix="folder-daemon") as pool:
            running = pool.submit(made.run)
            while not running.done() and not stop.wait(_LOOK_SECONDS):
                pass
            made.stop()
            running.result()
    print("Stopped. What was not done yet is in the queue.")


def _made(directory: Path, data: str, stack: ExitStack) -> FolderDaemon:
    """The daemon with all that it needs, closed with the stack."""
    from vedette.engine.home import open_vedette
    from vedette.handshake.tables.handshake_tables import FILE_NAME
    from vedette.ingest.daemon import FolderDaemon
    from vedette.ingest.embedding import embedder_named
    from vedette.ingest.engine_queue import QUEUE_DATABASE, EngineFileQueue
    from vedette.ingest.ingestion import Ingestion
    from vedette.sources.files.seen import FILE_NAME as SEEN_NAME
    from vedette.sources.files.seen import SeenFiles

    settings, clock = settings_at(directory), clock_of()
    home = stack.enter_context(open_vedette(directory, settings=settings, clock=clock))
    tables = stack.enter_context(open_tables(data))
    seen = SeenFiles(directory / SEEN_NAME)
    stack.callback(seen.close)
    store = stack.enter_context(open_vectors(directory))
    queue = stack.enter_context(
        EngineFileQueue(home.database(QUEUE_DATABASE), directory / FILE_NAME, lease=_LEASE)
    )
    embedder = embedder_named(settings.embedder)
    ingestion = Ingestion(embedder, store, clock, max_file_bytes=settings.max_file_bytes)
    return FolderDaemon(tables, seen, queue, ingestion, clock, worker_id=f"daemon-{os.getpid()}")
