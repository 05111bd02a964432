"""`python sync_runner.py DATA`: at every `start`, sync the watch `w` in a child process that may be killed.

Reads `start`, then `kill` or `wait`. Prints `ready` when everything is open, the number of processed changes after each
batch, `done`, and after `kill` or `wait` the line `ended CODE`. The children are forked from a process that has
imported everything, so that no kill hits the imports. The parent has a single thread (hence OPENBLAS_NUM_THREADS=1): a
fork does not copy other threads, and their locks would stay locked.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

import qdrant_client  # noqa: F401 - loaded before the fork

from vedette.clock import SystemClock
from vedette.handshake.tables import HandshakeTables
from vedette.search.embedding import HashingEmbedder
from vedette.search.folders import sync as sync_module
from vedette.search.folders.sync import FolderSync
from vedette.search.ingestion import VectorIngestor
from vedette.search.vectors.qdrant import QdrantStore
from vedette.sources.files.file_state import FileStateStore

sync_module.BATCH_CHANGES = 4  # many points at which the process can be killed


def sync(data: Path) -> None:
    tables, seen, store = (
        HandshakeTables(data / "handshake.db"),
        FileStateStore(data / "folders.db"),
        QdrantStore(data / "vectors"),
    )
    ingestion = VectorIngestor(HashingEmbedder(32), store, SystemClock())
    print("ready", flush=True)
    FolderSync("w", tables, seen, SystemClock(), ingestion).run(lambda done, total: print(done, flush=True))
    for each in (store, tables, seen):
        each.close()


def main() -> None:
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    while sys.stdin.readline():
        child = os.fork()
        if not child:
            code = 1
            try:
                sync(Path(sys.argv[1]))
                code = 0
            except Exception:
                traceback.print_exc()
            print("done", flush=True)
            os._exit(code)
        if sys.stdin.readline() == "kill\n":
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        print("ended", os.waitstatus_to_exitcode(status), flush=True)


main()
