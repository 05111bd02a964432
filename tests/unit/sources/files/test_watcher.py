"""The watcher thread of a folder on a real file system, with native events and with polling."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from queue import Empty, Queue
from threading import Condition, Event

import pytest

from vedette.clock import SystemClock
from vedette.sources.files import watcher
from vedette.sources.files.file_stamp import ChangeKind, FileChange
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.folder import UNSETTLED_MS, Folder
from vedette.sources.files.fs_events import FileEvents
from vedette.sources.files.selection import FolderSelection
from vedette.sources.files.watcher import FolderWatcher, WatcherTiming, polling_reason

PATIENCE_SECONDS = 60
"""Generous bound for a busy machine; a passing test does not wait for it."""


class Replica:
    """Collects what the watcher reports. `files` are the files of the folder according to the reports."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.changes: list[FileChange] = []
        self.modes: list[tuple[str, str]] = []
        self.down: str | None = None
        self.scans = 0
        self.refuse: Callable[[FileChange], bool] = lambda change: False
        self._changed = Condition()

    def accept(self, changes: Sequence[FileChange]) -> Collection[FileChange]:
        taken = [change for change in changes if not self.refuse(change)]
        with self._changed:
            for change in taken:
                self.changes.append(change)
                self.files.discard(change.old_path or change.path)
                if change.kind is not ChangeKind.DELETED:
                    self.files.add(change.path)
            self._changed.notify_all()
        return taken

    def mode_changed(self, mode: str, reason: str) -> None:
        with self._changed:
            self.modes.append((mode, reason))
            self._changed.notify_all()

    def availability_changed(self, down: str | None, unreadable: Sequence[tuple[str, str]]) -> None:
        with self._changed:
            self.down = down
            self._changed.notify_all()

    def scan_finished(self, began_at: datetime) -> None:
        with self._changed:
            self.scans += 1
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_SECONDS), self.__dict__


class WatcherBench:
    def __init__(self, base: Path, force_polling: str | None, root: str = "root") -> None:
        self.base, self.root, self.force_polling = base, base / root, force_polling
        self.root.mkdir(exist_ok=True)
        self.replica = Replica()
        self.start()

    def start(self) -> None:
        self.seen = FileStateStore(self.base / "folders.db")
        folder = Folder("w", self.root, FolderSelection(), self.seen, SystemClock())
        timing = WatcherTiming(
            debounce_seconds=0.05,
            poll_seconds=0.1,
            rescan_seconds=3_600,
            retry_seconds=0.05,
            tick_milliseconds=20,
        )
        self.watcher = FolderWatcher(
            folder, self.replica, SystemClock(), timing, force_polling=self.force_polling
        )
        self.watcher.start()

    def stop(self) -> None:
        self.watcher.stop()
        assert not self.watcher.alive
        self.seen.close()

    def actual(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}

    def settle(self) -> None:
        self.replica.wait(lambda: self.replica.files == self.actual())


@pytest.fixture(params=["native", "polling"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WatcherBench]:
    made = WatcherBench(tmp_path, "asked for" if request.param == "polling" else None)
    made.replica.wait(lambda: bool(made.replica.modes) and made.replica.scans > 0)
    assert made.replica.modes[0][0] == request.param
    yield made
    made.stop()


def test_created_changed_moved_and_deleted_files_are_reported(bench: WatcherBench) -> None:
    root = bench.root
    (root / "a").write_text("1")
    (root / "x/y/z").mkdir(parents=True)
    for number in range(5):
        (root / f"x/y/z/{number}").write_text("1")
    bench.settle()
    reported_count = len(bench.replica.changes)
    (root / "a").write_text("longer")
    bench.replica.wait(
        lambda: any(
            c.path == "a" and c.kind is ChangeKind.CHANGED for c in bench.replica.changes[reported_count:]
        )
    )
    (root / "x").rename(root / "moved")
    (root / "moved/y/z/new").write_text("1")
    bench.settle()
    shutil.rmtree(root / "moved/y")
    (root / "a").unlink()
    bench.settle()
    assert bench.replica.files == set()


def test_burst_loses_no_change(bench: WatcherBench) -> None:
    for folder in range(20):
        (bench.root / f"{folder}/deep").mkdir(parents=True)
        for number in range(150):
            (bench.root / f"{folder}/deep/{number}").write_text("x")
    bench.settle()
    assert len(bench.replica.files) == 3_000


def test_refused_changes_are_offered_again(bench: WatcherBench) -> None:
    refused: list[str] = []

    def refuse(change: FileChange) -> bool:
        refused.append(change.path)
        return len(refused) < 10

    bench.replica.refuse = refuse
    (bench.root / "a").write_text("1")
    bench.settle()
    assert refused.count("a") >= 10


def test_refused_paths_are_scanned_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "PATHS_AFTER_REFUSAL", 5)
    made = WatcherBench(tmp_path, None)
    made.replica.wait(lambda: made.replica.scans > 0)
    sizes, real, has_room = list[int](), made.replica.accept, Event()

    def take(changes: Sequence[FileChange]) -> Collection[FileChange]:
        sizes.append(len(changes))
        return real(changes) if has_room.is_set() else ()

    made.replica.accept = take  # type: ignore[method-assign]
    for number in range(100):
        (made.root / str(number)).write_text("1")
    made.replica.wait(lambda: len(sizes) > 6)
    refused = sizes[1:7]
    has_room.set()
    made.settle()
    made.stop()
    assert max(refused) <= 5
    assert max(sizes[7:]) > 5, "when all are taken, more are asked for"


def test_restart_reports_changes_since_the_stop(bench: WatcherBench) -> None:
    (bench.root / "kept").write_text("1")
    (bench.root / "gone").write_text("1")
    bench.settle()
    bench.stop()
    (bench.root / "gone").unlink()
    (bench.root / "new").write_text("1")
    bench.start()
    bench.settle()
    assert bench.replica.files == {"kept", "new"}


def test_accepted_changes_are_not_reported_again_after_a_stop(bench: WatcherBench) -> None:
    """Accepted changes are written when the watcher is idle, and at the latest when it stops."""
    for number in range(50):
        (bench.root / str(number)).write_text("1")
    bench.settle()
    Event().wait(2 * UNSETTLED_MS / 1000)  # a recently written file is checked once more
    bench.watcher.request_rescan()
    scans = bench.replica.scans
    bench.replica.wait(lambda: bench.replica.scans > scans)
    bench.stop()
    reported_count, scans = len(bench.replica.changes), bench.replica.scans
    bench.start()
    bench.replica.wait(lambda: bench.replica.scans > scans)
    assert bench.replica.changes[reported_count:] == []


def test_root_that_disappears_and_returns_deletes_nothing(bench: WatcherBench) -> None:
    (bench.root / "a").write_text("1")
    bench.settle()
    bench.root.rename(bench.base / "away")
    bench.replica.wait(lambda: bench.replica.down is not None)
    assert bench.replica.files == {"a"}
    (bench.base / "away" / "b").write_text("1")
    (bench.base / "away").rename(bench.root)
    bench.settle()
    assert bench.replica.files == {"a", "b"}
    assert bench.replica.down is None
    (bench.root / "c").write_text("1")
    bench.settle()


def test_recreated_root_is_watched_again(bench: WatcherBench) -> None:
    (bench.root / "a").write_text("1")
    bench.settle()
    shutil.rmtree(bench.root)
    bench.root.mkdir()
    bench.settle()
    (bench.root / "b").write_text("1")
    bench.settle()
    assert bench.replica.files == {"b"}


def test_full_scan_can_be_requested(bench: WatcherBench) -> None:
    before = bench.replica.scans
    bench.watcher.request_rescan()
    bench.replica.wait(lambda: bench.replica.scans > before)


def test_failing_listener_is_called_again(bench: WatcherBench, caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([RuntimeError("the queue is away"), OSError("still")])

    def refuse(change: FileChange) -> bool:
        error = next(failures, None)
        if error is not None:
            raise error
        return False

    bench.replica.refuse = refuse
    (bench.root / "a").write_text("1")
    bench.settle()
    assert {mode for mode, _ in bench.replica.modes} == {bench.replica.modes[0][0]}, "no fall back to polling"
    assert "it restarts with a scan" in caplog.text


def test_inotify_limit_falls_back_to_polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> FileEvents:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watcher, "FileEvents", full)
    bench = WatcherBench(tmp_path, None)
    (bench.root / "a").write_text("1")
    bench.settle()
    assert bench.replica.modes == [("polling", "OS file watch limit reached")]
    bench.stop()


class Overflowing:
    """File events that return only what is put into `batches`; all other events are lost."""

    def __init__(self) -> None:
        self.batches: Queue[set[str]] = Queue()
        self.short_reads: Queue[tuple[set[str], set[str]]] = Queue()
        """The paths of a short read, and those of the read after it."""
        self.stopping = Event()

    def fake_events(self, _root: Path, stopping: Event) -> Overflowing:
        self.stopping = stopping
        return self

    def __enter__(self) -> Overflowing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, milliseconds: int) -> set[str] | None:
        if self.stopping.is_set():
            return None
        try:
            if milliseconds > watcher.SHORT_READ_MS:
                return self.batches.get(timeout=0.02)
            reported_count, more = self.short_reads.get_nowait()
        except Empty:
            return set()
        self.batches.put(more)
        return reported_count


def test_overflow_is_repaired_by_a_rescan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of a burst were lost, some from folders with other events and some from folders without any."""
    reported_count = Overflowing()
    monkeypatch.setattr(watcher, "FileEvents", reported_count.fake_events)
    monkeypatch.setattr(watcher, "LEFT_AT_ONCE", 7)
    for folder in ("busy", "aside", "quiet"):
        (tmp_path / "files" / folder).mkdir(parents=True)
    for number in range(30):
        (tmp_path / f"files/quiet/{number}").write_text("1")
    (tmp_path / "files/aside/gone").write_text("1")
    while _is_young(tmp_path / "files/aside"):
        Event().wait(0.01)
    bench = WatcherBench(tmp_path, None, root="files")
    bench.replica.wait(lambda: len(bench.replica.files) == 31 and bench.replica.scans > 0)
    scans, lines = bench.replica.scans, len(bench.replica.changes)

    (bench.root / "quiet/17").write_text("in place")
    (bench.root / "aside/gone").unlink()
    (bench.root / "aside/new/deep").mkdir(parents=True)
    (bench.root / "aside/new/deep/file").write_text("1")
    for number in range(1_500):
        (bench.root / f"busy/{number}").write_text("1")
    reported_count.batches.put({f"{bench.root}/busy/{number}" for number in range(watcher.BURST)})
    bench.settle()
    bench.replica.wait(
        lambda: any(
            (change.kind, change.path) == (ChangeKind.CHANGED, "quiet/17")
            for change in bench.replica.changes[lines:]
        )
    )
    bench.stop()
    assert bench.replica.scans == scans, "not everything was looked at"


def test_burst_read_in_parts_counts_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported_count = Overflowing()
    monkeypatch.setattr(watcher, "FileEvents", reported_count.fake_events)
    monkeypatch.setattr(watcher, "BURST", 100)
    monkeypatch.setattr(watcher, "MANY_PATHS", 1)
    bench = WatcherBench(tmp_path, None)
    bench.replica.wait(lambda: bench.replica.scans > 0)
    (bench.root / "aside").mkdir()
    (bench.root / "aside/without events").write_text("1")
    (bench.root / "first").write_text("1")
    parts = [{f"{bench.root}/{part}{number}" for number in range(60)} for part in "ab"]
    reported_count.short_reads.put((parts[0], parts[1]))
    reported_count.batches.put({f"{bench.root}/first"})
    bench.settle()
    bench.stop()


def _is_young(folder: Path) -> bool:
    """A change within the same clock tick could leave the times unchanged."""
    return SystemClock().now().timestamp() - folder.stat().st_ctime < 0.1


def test_local_disk_has_native_events(tmp_path: Path) -> None:
    assert polling_reason(tmp_path) is None
