"""`python sync_runner.py DATA`: takes up the watch `w`, saying each file that is done; meant to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from vedette.clock import SystemClock
from vedette.handshake.tables import HandshakeTables
from vedette.ingest import folder_run
from vedette.ingest.embedding import HashingEmbedder
from vedette.ingest.folder_run import FolderRun
from vedette.ingest.ingestion import Ingestion
from vedette.ingest.qdrant import QdrantVectors
from vedette.sources.files.seen import SeenFiles

folder_run.BATCH_FILES = 4  # many places to die at


def main() -> None:
    data = Path(sys.argv[1])
    tables, seen, store = (
        HandshakeTables(data / "handshake.db"),
        SeenFiles(data / "folders.db"),
        QdrantVectors(data / "vectors"),
    )
    ingestion = Ingestion(HashingEmbedder(32), store, SystemClock())
    print("ready", flush=True)
    FolderRun("w", tables, seen, SystemClock(), ingestion).run(lambda done, total: print(done, flush=True))
    for each in (store, tables, seen):
        each.close()


main()
