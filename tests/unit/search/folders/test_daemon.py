"""The daemon on a real file system: what is in the folder is in the store, and `wqm`'s writes act at once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

import vedette
from tests.support.faulty_disk import NOBODY, as_nobody
from vedette.clock import Clock, SystemClock
from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.error_patterns import PatternType
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.rows import WatchRow
from vedette.search.embedding import HashingEmbedder
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue
from vedette.search.file_queue.tasks import FileOperation, FileQueue, FileTask
from vedette.search.folders import daemon
from vedette.search.folders.daemon import DaemonTiming, FolderDaemon
from vedette.search.folders.sync import open_folder
from vedette.search.ingestion import VectorIngestor
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.folder import Folder
from vedette.sources.files.watcher import WatcherTiming
from vedette.testing.file_queue import MemoryFileQueue
from vedette.testing.vectors import MemoryVectorStore

PATIENCE_SECONDS = 60


class Running:
    def __init__(self, base: Path, queue: FileQueue) -> None:
        self.base, self.root = base, base / "root"
        self.root.mkdir()
        self.store, self.queue = MemoryVectorStore(), queue
        self.command_line = HandshakeTables(base / "handshake.db")
        self.start()

    def start(self) -> None:
        self.tables = HandshakeTables(self.base / "handshake.db")
        self.seen = FileStateStore(self.base / "folders.db")
        self.daemon = FolderDaemon(
            self.tables,
            self.seen,
            self.queue,
            VectorIngestor(HashingEmbedder(16), self.store, SystemClock()),
            SystemClock(),
            worker_id="daemon",
            timing=DaemonTiming(idle_seconds=0.01, watch_refresh_seconds=0.02, load_check_seconds=0.1),
            watcher_timing=WatcherTiming(retry_seconds=0.05, tick_milliseconds=20),
        )
        self.thread = Thread(target=self.daemon.run)
        self.thread.start()

    def stop(self) -> None:
        self.daemon.stop()
        self.thread.join()
        self.tables.close()
        self.seen.close()

    def add(self, watch_id: str = "w") -> None:
        config = WatchFolderConfig(
            watch_id=watch_id, path=str(self.root), collection="docs", debounce_seconds=0.05
        )
        self.command_line.add_watch(config)

    def stored(self) -> set[str]:
        return {str(Path(path).relative_to(self.root)) for path in self.store.paths("docs")}

    def actual(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}

    def wait(self, condition: Callable[[], bool]) -> None:
        for _ in range(PATIENCE_SECONDS * 50):
            if condition():
                return
            assert self.thread.is_alive()
            Event().wait(0.02)
        raise AssertionError((self.stored() ^ self.actual(), self.queue.list_tasks()[:5]))

    def settle(self) -> None:
        self.wait(lambda: self.stored() == self.actual() and self.queue.depth() == 0)


@pytest.fixture(params=["twin", "engine"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileQueue]:
    if request.param == "twin":
        yield MemoryFileQueue(SystemClock())
        return
    with (
        vedette.open(tmp_path / "data") as home,
        EngineFileQueue(home.database(QUEUE_DATABASE), tmp_path / "handshake.db") as made,
    ):
        yield made


@pytest.fixture
def running(tmp_path: Path, queue: FileQueue) -> Iterator[Running]:
    made = Running(tmp_path, queue)
    yield made
    made.stop()
    made.command_line.close()


def test_the_store_follows_the_folder(running: Running) -> None:
    (running.root / "a").write_text("there before")
    running.add()
    running.settle()
    for folder in range(5):
        (running.root / f"{folder}/x").mkdir(parents=True)
        for number in range(40):
            (running.root / f"{folder}/x/{number}").write_text(f"words {number}")
    running.settle()
    (running.root / "0").rename(running.root / "moved")
    shutil.rmtree(running.root / "1")
    (running.root / "a").write_text("changed")
    running.settle()
    assert len(running.stored()) == 161
    assert running.command_line.watch("w").watch_mode == "native"


def test_the_command_line_acts_at_once(running: Running) -> None:
    running.add()
    running.settle()
    running.command_line.pause_watch("w")
    (running.root / "a").write_text("x")
    running.wait(lambda: running.command_line.watch("w").last_scan is not None)
    assert running.stored() == set()
    running.command_line.resume_watch("w")
    running.settle()
    running.command_line.disable_watch("w")
    running.wait(lambda: running.daemon.watched_ids() == set())
    (running.root / "b").write_text("x")
    running.command_line.enable_watch("w")
    running.settle()
    running.command_line.update_watch("w", ignore_patterns=("c",))
    running.wait(lambda: running.daemon.watched_ids() == {"w"})
    running.command_line.remove_watch("w")
    running.wait(lambda: running.daemon.watched_ids() == set())


def test_a_restart_goes_on_where_it_stopped(running: Running) -> None:
    running.add()
    (running.root / "kept").write_text("x")
    (running.root / "gone").write_text("x")
    running.settle()
    running.stop()
    written = running.store.files_written
    (running.root / "gone").unlink()
    (running.root / "new").write_text("x")
    running.start()
    running.settle()
    assert running.stored() == {"kept", "new"}
    assert running.store.files_written == written + 1, "what did not change is not written again"


def give_to_nobody(base: Path) -> None:
    """So that whoever acts as nobody can go on in it, and take rights away from itself."""
    if os.geteuid() == 0:
        for path in base.rglob("*"):
            os.chown(path, NOBODY, NOBODY)


def test_a_watch_that_does_not_start_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    def sometimes(row: WatchRow, seen: FileStateStore, clock: Clock) -> Folder:
        if broken and row.watch_id == "a":
            raise RuntimeError("no more threads")
        return open_folder(row, seen, clock)

    monkeypatch.setattr(daemon, "open_folder", sometimes)
    running = Running(tmp_path, MemoryFileQueue(SystemClock()))
    try:
        (running.root / "file").write_text("words")
        running.add("a")
        running.add("b")
        running.settle()
        reason = running.command_line.watch("a").unavailable_reason
        assert (running.daemon.watched_ids(), reason) == (
            {"b"},
            "its watcher does not start: no more threads",
        )
        broken = False
        running.wait(lambda: running.daemon.watched_ids() == {"a", "b"})
        running.wait(lambda: running.command_line.watch("a").unavailable_reason is None)
    finally:
        running.stop()
        running.command_line.close()


def test_rights_that_are_taken_away_and_given_back() -> None:
    """Nothing counts as deleted, the rest goes on, the watch is told; afterwards all is as if nothing had been."""
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)  # nobody may go through
        made = Running(Path(base), MemoryFileQueue(SystemClock()))
        try:
            made.add()
            for name in ("closed/deep/a", "closed/b", "shut", "open/gone"):
                (made.root / name).parent.mkdir(parents=True, exist_ok=True)
                (made.root / name).write_text("words")
            made.settle()
            give_to_nobody(Path(base))
            with as_nobody():
                (made.root / "closed").chmod(0)
                (made.root / "shut").chmod(0)
                (made.root / "open/gone").unlink()
                (made.root / "open/new").write_text("words")
                before = made.tables.watch("w").last_scan
                made.tables.request_rescan("w")
                made.wait(lambda: made.tables.watch("w").last_scan != before)
                made.wait(lambda: made.tables.watch("w").health.total_errors > 0)
                made.wait(lambda: "open/new" in made.stored() and "open/gone" not in made.stored())
                kept = made.stored()
                (made.root / "closed").chmod(0o755)
                (made.root / "shut").chmod(0o644)
                (made.root / "closed/b").write_text("other words")
            assert kept == {"closed/deep/a", "closed/b", "shut", "open/new"}
            found = {each.key.type for each in made.tables.patterns("w")}
            assert PatternType.PERMISSION in found
            made.settle()
            made.wait(lambda: made.store.files_written == 6)
            assert made.tables.watch("w").health.consecutive_errors == 0
        finally:
            made.stop()
            made.command_line.close()


def test_tasks_of_a_watch_that_was_removed_are_forgotten(tmp_path: Path, queue: FileQueue) -> None:
    (tmp_path / "a").write_text("x")
    task = FileTask(
        path=str(tmp_path / "a"),
        watch_id="gone",
        collection="docs",
        operation=FileOperation.INGEST,
        priority=5,
    )
    queue.put([task])
    store, seen = MemoryVectorStore(), FileStateStore(tmp_path / "folders.db")
    with HandshakeTables(tmp_path / "handshake.db") as tables:
        ingestion = VectorIngestor(HashingEmbedder(16), store, SystemClock())
        daemon = FolderDaemon(tables, seen, queue, ingestion, SystemClock(), worker_id="daemon")
        daemon.step()
    seen.close()
    assert (queue.depth(), store.paths("docs")) == (0, set())
