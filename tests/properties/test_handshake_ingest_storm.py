"""Random changes through folder, queue, worker and store, with outages, pauses, damaged files and restarts.

Finally the vector store equals a clean rebuild, except for excluded files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.test_handshake_file_storm import FileStorm
from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.exclusions import find_exclusion
from vedette.handshake.tables import HandshakeTables
from vedette.search.embedding import HashingEmbedder
from vedette.search.folders.intake import FolderIntake
from vedette.search.folders.worker import IngestWorker
from vedette.search.ingestion import FileOutcome, IngestRequest, VectorIngestor
from vedette.sources.files.folder import ScanOutcome
from vedette.testing import ManualClock
from vedette.testing.file_queue import MemoryFileQueue
from vedette.testing.vectors import MemoryVectorStore

DATA = st.sampled_from([b"one", b"two", b"\0\1\2\3", None])
"""Text, bytes that are not text, and no file."""
FEW_NAMES = st.sampled_from(["a", "b"])
"""Few names, so that several changes concern the same file."""


class BusyIngestion(VectorIngestor):
    """Changes files after they were read and before their tasks are acknowledged."""

    def __init__(self, storm: IngestStorm) -> None:
        super().__init__(HashingEmbedder(16), storm.store, storm.clock)
        self._storm = storm

    def ingest(self, files: Sequence[IngestRequest]) -> list[FileOutcome]:
        outcomes = super().ingest(files)
        changes_during_ingest, self._storm.changes_during_ingest = self._storm.changes_during_ingest, []
        for name, text in changes_during_ingest:
            self._storm.put_file(name, text)
        if changes_during_ingest:
            self._storm.scan()
        return outcomes


class IngestStorm(FileStorm):
    """Queue and store survive a restart; folder, intake and worker do not."""

    def __init__(self) -> None:
        self.clock, self.store = ManualClock(), MemoryVectorStore()
        self.queue = MemoryFileQueue(self.clock)
        self.changes_during_ingest: list[tuple[str, bytes | None]] = []
        super().__init__()
        self.tables.add_watch(WatchFolderConfig(watch_id="w", path=str(self.root), collection="docs"))

    def _open(self) -> None:
        super()._open()
        self.tables = HandshakeTables(self.base / "handshake.db", clock=self.clock, rng=Random(1))
        self.intake = FolderIntake("w", self.tables, self.queue, self.clock)
        self.worker = IngestWorker(
            self.tables,
            self.queue,
            BusyIngestion(self),
            self.clock,
            worker_id="me",
            batch_size=3,
            rng=Random(1),
        )

    def put_file(self, name: str, data: bytes | None) -> None:
        """Write the file, or delete it if `data` is None."""
        path = self.root / name
        if path.is_dir():
            return
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(data)

    def put_one(self, name: str, data: bytes | None, followed_up: int) -> None:
        """Change a file; with `followed_up` 1 also scan it, with 2 also process it."""
        self.put_file(name, data)
        if followed_up > 0:
            self.scan()
        if followed_up > 1:
            self.worker.step()

    def put_meanwhile(self, name: str, data: bytes | None) -> None:
        self.changes_during_ingest.append((name, data))

    def scan(self) -> None:
        self._accept(self.folder.full_scan(), refused=0)

    def process(self, steps: int, seconds: int) -> None:
        for _ in range(steps):
            self.worker.step()
            self.clock.advance(seconds)

    def change_the_sink(self, down: bool) -> None:
        self.store.outage = "no route" if down else None

    def pause(self, paused: bool) -> None:
        if paused:
            self.tables.pause_watch("w")
        else:
            self.tables.resume_watch("w")

    def lose_a_worker(self) -> None:
        """Claim tasks for a worker that never settles them."""
        self.queue.claim(2, "lost")

    def restart(self, confirmed: bool, processed: bool) -> None:
        """Restart, optionally after a kill between the queue and the record of the seen files.

        Another process may work on the queue meanwhile.
        """
        outcome = self.folder.full_scan()
        self.folder.mark_pending(outcome.changes)
        accepted = self.intake.accept(outcome.changes)
        if confirmed:
            self.folder.commit(accepted)
        self.file_states.close()
        self.tables.close()
        self._open()
        if processed:
            self.worker.step()

    def _accept(self, outcome: ScanOutcome, refused: int) -> None:
        self.folder.mark_pending(outcome.changes)
        self.folder.commit(self.intake.accept(outcome.changes[refused:]))

    def _compare(self) -> None:
        try:
            self._settle()
            assert self._content(self.store) == self._content(self._rebuilt())
        finally:
            self.tables.close()

    def _settle(self) -> None:
        """Stop all faults and advance the clock until nothing is left to do."""
        self.store.outage = None
        self.changes_during_ingest = []
        self.tables.resume_watch("w")
        outcome = self.folder.full_scan()
        for _ in range(1_000):
            if outcome.changes:
                self._accept(outcome, refused=0)
            elif not self.queue.depth():
                return
            self.tables.enable_watch("w")
            self.worker.step()
            self.clock.advance(400)
            if outcome.unstable:
                Event().wait(0.06)  # until a later write would change the mtime
            outcome = self.folder.full_scan()
        raise AssertionError(f"no end: {outcome}, {self.queue.list_tasks()}, {self.tables.watch('w').health}")

    def _rebuilt(self) -> MemoryVectorStore:
        clean = MemoryVectorStore()
        exclusions, now = self.tables.exclusions("w"), self.clock.now()
        files = [
            IngestRequest(path=str(path), watch_id="w", collection="docs")
            for path in self.root.rglob("*")
            if path.is_file() and find_exclusion(exclusions, str(path), now) is None
        ]
        VectorIngestor(HashingEmbedder(16), clean, self.clock).ingest(files)
        return clean

    def _content(self, store: MemoryVectorStore) -> dict[str, str]:
        paths = sorted(store.paths("docs"))
        return {
            str(Path(path).relative_to(self.root)): stored.content_hash
            for path, stored in store.stored_files("docs", paths).items()
        }


def call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


PUT = call("put_one", FEW_NAMES, DATA, st.integers(0, 2))
STEPS = st.one_of(
    *[PUT] * 4,  # most steps change files
    call("put_meanwhile", FEW_NAMES, DATA),
    call("restart", st.booleans(), st.booleans()),
    call("process", st.integers(1, 5), st.sampled_from([0, 1, 10, 100])),
    call("rename", FEW_NAMES, FEW_NAMES),
    call("change_the_sink", st.booleans()),
    call("pause", st.booleans()),
    call("lose_a_worker"),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=8, max_size=30))
def test_store_equals_a_clean_rebuild(steps: list[tuple[Any, ...]]) -> None:
    storm = IngestStorm()
    try:
        for name, *arguments in steps:
            getattr(storm, name)(*arguments)
    finally:
        storm.teardown()
