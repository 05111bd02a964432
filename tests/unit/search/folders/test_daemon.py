"""The daemon on a real file system: the store follows the folder, and changes by `wqm` take effect."""

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

TIMEOUT_SECONDS = 60


class RunningDaemon:
    def __init__(self, base: Path, queue: FileQueue) -> None:
        self.base, self.root = base, base / "root"
        self.root.mkdir()
        self.store, self.queue = MemoryVectorStore(), queue
        self.command_line = HandshakeTables(base / "handshake.db")
        self.start()

    def start(self) -> None:
        self.tables = HandshakeTables(self.base / "handshake.db")
        self.file_states = FileStateStore(self.base / "folders.db")
        self.daemon = FolderDaemon(
            self.tables,
            self.file_states,
            self.queue,
            VectorIngestor(HashingEmbedder(16), self.store, SystemClock()),
            self.store,
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
        self.file_states.close()

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
        for _ in range(TIMEOUT_SECONDS * 50):
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
        vedette.open(tmp_path / "data") as queue_vedette,
        EngineFileQueue(queue_vedette.database(QUEUE_DATABASE), tmp_path / "handshake.db") as opened,
    ):
        yield opened


@pytest.fixture
def running(tmp_path: Path, queue: FileQueue) -> Iterator[RunningDaemon]:
    running = RunningDaemon(tmp_path, queue)
    yield running
    running.stop()
    running.command_line.close()


def test_store_follows_the_folder(running: RunningDaemon) -> None:
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


def test_changes_by_the_command_line_take_effect(running: RunningDaemon) -> None:
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


def test_restart_processes_only_what_changed(running: RunningDaemon) -> None:
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
    assert running.store.files_written == written + 1, "an unchanged file is not written again"


def give_to_nobody(base: Path) -> None:
    """Change the owner of the files, so that code that runs as the user nobody can write them and change their mode."""
    if os.geteuid() == 0:
        for path in base.rglob("*"):
            os.chown(path, NOBODY, NOBODY)


def test_watcher_that_does_not_start_does_not_affect_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    def open_or_fail(row: WatchRow, file_states: FileStateStore, clock: Clock) -> Folder:
        if broken and row.watch_id == "a":
            raise RuntimeError("no more threads")
        return open_folder(row, file_states, clock)

    monkeypatch.setattr(daemon, "open_folder", open_or_fail)
    running = RunningDaemon(tmp_path, MemoryFileQueue(SystemClock()))
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


def test_permissions_removed_and_restored() -> None:
    """Unreadable files do not count as deleted, other files are processed, and the watch records the errors."""
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)  # the user nobody must be able to enter it
        running = RunningDaemon(Path(base), MemoryFileQueue(SystemClock()))
        try:
            running.add()
            for name in ("closed/deep/a", "closed/b", "shut", "open/gone"):
                (running.root / name).parent.mkdir(parents=True, exist_ok=True)
                (running.root / name).write_text("words")
            running.settle()
            give_to_nobody(Path(base))
            with as_nobody():
                (running.root / "closed").chmod(0)
                (running.root / "shut").chmod(0)
                (running.root / "open/gone").unlink()
                (running.root / "open/new").write_text("words")
                before = running.tables.watch("w").last_scan
                running.tables.request_rescan("w")
                running.wait(lambda: running.tables.watch("w").last_scan != before)
                running.wait(lambda: running.tables.watch("w").health.total_errors > 0)
                running.wait(lambda: "open/new" in running.stored() and "open/gone" not in running.stored())
                kept = running.stored()
                (running.root / "closed").chmod(0o755)
                (running.root / "shut").chmod(0o644)
                (running.root / "closed/b").write_text("other words")
            assert kept == {"closed/deep/a", "closed/b", "shut", "open/new"}
            pattern_types = {pattern.key.type for pattern in running.tables.patterns("w")}
            assert PatternType.PERMISSION in pattern_types
            running.settle()
            running.wait(lambda: running.store.files_written == 6)
            assert running.tables.watch("w").health.consecutive_errors == 0
        finally:
            running.stop()
            running.command_line.close()


def test_tasks_of_a_removed_watch_are_discarded(tmp_path: Path, queue: FileQueue) -> None:
    (tmp_path / "a").write_text("x")
    task = FileTask(
        path=str(tmp_path / "a"),
        watch_id="gone",
        collection="docs",
        operation=FileOperation.INGEST,
        priority=5,
    )
    queue.put([task])
    store, file_states = MemoryVectorStore(), FileStateStore(tmp_path / "folders.db")
    with HandshakeTables(tmp_path / "handshake.db") as tables:
        ingestor = VectorIngestor(HashingEmbedder(16), store, SystemClock())
        daemon = FolderDaemon(tables, file_states, queue, ingestor, store, SystemClock(), worker_id="daemon")
        daemon.step()
    file_states.close()
    assert (queue.depth(), store.paths("docs")) == (0, set())
