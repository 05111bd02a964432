"""The thread around a folder, on a real file system, told by the operating system or polling."""

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
"""A busy machine may take long; a test that passes takes none of it."""


class Replica:
    """Keeps what it is told; `files` is what the folder holds if all it was told is true."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.changes: list[FileChange] = []
        self.modes: list[tuple[str, str]] = []
        self.down: str | None = None
        self.scans = 0
        self.refuse: Callable[[FileChange], bool] = lambda change: False
        self._bell = Condition()

    def accept(self, changes: Sequence[FileChange]) -> Collection[FileChange]:
        taken = [change for change in changes if not self.refuse(change)]
        with self._bell:
            for change in taken:
                self.changes.append(change)
                self.files.discard(change.old_path or change.path)
                if change.kind is not ChangeKind.DELETED:
                    self.files.add(change.path)
            self._bell.notify_all()
        return taken

    def mode_changed(self, mode: str, reason: str) -> None:
        with self._bell:
            self.modes.append((mode, reason))
            self._bell.notify_all()

    def availability_changed(self, down: str | None, unreadable: Sequence[tuple[str, str]]) -> None:
        with self._bell:
            self.down = down
            self._bell.notify_all()

    def scan_finished(self, began_at: datetime) -> None:
        with self._bell:
            self.scans += 1
            self._bell.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._bell:
            assert self._bell.wait_for(condition, PATIENCE_SECONDS), self.__dict__


class Setting:
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
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path, "asked for" if request.param == "polling" else None)
    made.replica.wait(lambda: bool(made.replica.modes) and made.replica.scans > 0)
    assert made.replica.modes[0][0] == request.param
    yield made
    made.stop()


def test_files_and_trees_come_change_move_and_go(setting: Setting) -> None:
    root = setting.root
    (root / "a").write_text("1")
    (root / "x/y/z").mkdir(parents=True)
    for number in range(5):
        (root / f"x/y/z/{number}").write_text("1")
    setting.settle()
    told = len(setting.replica.changes)
    (root / "a").write_text("longer")
    setting.replica.wait(
        lambda: any(c.path == "a" and c.kind is ChangeKind.CHANGED for c in setting.replica.changes[told:])
    )
    (root / "x").rename(root / "moved")
    (root / "moved/y/z/new").write_text("1")
    setting.settle()
    shutil.rmtree(root / "moved/y")
    (root / "a").unlink()
    setting.settle()
    assert setting.replica.files == set()


def test_a_burst_loses_nothing(setting: Setting) -> None:
    for folder in range(20):
        (setting.root / f"{folder}/deep").mkdir(parents=True)
        for number in range(150):
            (setting.root / f"{folder}/deep/{number}").write_text("x")
    setting.settle()
    assert len(setting.replica.files) == 3_000


def test_what_is_refused_is_offered_again(setting: Setting) -> None:
    refused: list[str] = []

    def refuse(change: FileChange) -> bool:
        refused.append(change.path)
        return len(refused) < 10

    setting.replica.refuse = refuse
    (setting.root / "a").write_text("1")
    setting.settle()
    assert refused.count("a") >= 10


def test_those_who_wait_are_not_all_looked_at_time_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "PATHS_AFTER_REFUSAL", 5)
    made = Setting(tmp_path, None)
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


def test_a_restart_tells_what_happened_meanwhile(setting: Setting) -> None:
    (setting.root / "kept").write_text("1")
    (setting.root / "gone").write_text("1")
    setting.settle()
    setting.stop()
    (setting.root / "gone").unlink()
    (setting.root / "new").write_text("1")
    setting.start()
    setting.settle()
    assert setting.replica.files == {"kept", "new"}


def test_what_was_taken_is_not_told_again_after_a_stop(setting: Setting) -> None:
    """It is noted on disk when there is nothing else to do, and at the latest when it is stopped."""
    for number in range(50):
        (setting.root / str(number)).write_text("1")
    setting.settle()
    Event().wait(2 * UNSETTLED_MS / 1000)  # what was written just now is looked at once more
    setting.watcher.request_rescan()
    scans = setting.replica.scans
    setting.replica.wait(lambda: setting.replica.scans > scans)
    setting.stop()
    told, scans = len(setting.replica.changes), setting.replica.scans
    setting.start()
    setting.replica.wait(lambda: setting.replica.scans > scans)
    assert setting.replica.changes[told:] == []


def test_a_root_that_goes_and_comes_back_deletes_nothing(setting: Setting) -> None:
    (setting.root / "a").write_text("1")
    setting.settle()
    setting.root.rename(setting.base / "away")
    setting.replica.wait(lambda: setting.replica.down is not None)
    assert setting.replica.files == {"a"}
    (setting.base / "away" / "b").write_text("1")
    (setting.base / "away").rename(setting.root)
    setting.settle()
    assert setting.replica.files == {"a", "b"}
    assert setting.replica.down is None
    (setting.root / "c").write_text("1")
    setting.settle()


def test_a_root_that_is_made_anew_is_watched_anew(setting: Setting) -> None:
    (setting.root / "a").write_text("1")
    setting.settle()
    shutil.rmtree(setting.root)
    setting.root.mkdir()
    setting.settle()
    (setting.root / "b").write_text("1")
    setting.settle()
    assert setting.replica.files == {"b"}


def test_a_rescan_can_be_asked_for(setting: Setting) -> None:
    before = setting.replica.scans
    setting.watcher.request_rescan()
    setting.replica.wait(lambda: setting.replica.scans > before)


def test_a_listener_that_fails_is_asked_again(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([RuntimeError("the queue is away"), OSError("still")])

    def refuse(change: FileChange) -> bool:
        error = next(failures, None)
        if error is not None:
            raise error
        return False

    setting.replica.refuse = refuse
    (setting.root / "a").write_text("1")
    setting.settle()
    assert {mode for mode, _ in setting.replica.modes} == {setting.replica.modes[0][0]}, (
        "no fall back to polling"
    )
    assert "it restarts with a scan" in caplog.text


def test_too_few_watches_fall_back_to_polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> FileEvents:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watcher, "FileEvents", full)
    setting = Setting(tmp_path, None)
    (setting.root / "a").write_text("1")
    setting.settle()
    assert setting.replica.modes == [("polling", "OS file watch limit reached")]
    setting.stop()


class Overflowing:
    """Tells of what is put into `batches`, and of nothing else that happens: the rest was lost on the way."""

    def __init__(self) -> None:
        self.batches: Queue[set[str]] = Queue()
        self.glances: Queue[tuple[set[str], set[str]]] = Queue()
        """Told to somebody who glances, and what comes right after it."""
        self.stopping = Event()

    def hearing(self, _root: Path, stopping: Event) -> Overflowing:
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
            told, more = self.glances.get_nowait()
        except Empty:
            return set()
        self.batches.put(more)
        return told


def test_an_overflow_is_made_good_by_a_rescan_of_what_it_may_have_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of a burst were lost, from folders that the others tell of and from folders of which none is heard."""
    told = Overflowing()
    monkeypatch.setattr(watcher, "FileEvents", told.hearing)
    monkeypatch.setattr(watcher, "LEFT_AT_ONCE", 7)
    for folder in ("busy", "aside", "quiet"):
        (tmp_path / "files" / folder).mkdir(parents=True)
    for number in range(30):
        (tmp_path / f"files/quiet/{number}").write_text("1")
    (tmp_path / "files/aside/gone").write_text("1")
    while _is_young(tmp_path / "files/aside"):
        Event().wait(0.01)
    setting = Setting(tmp_path, None, root="files")
    setting.replica.wait(lambda: len(setting.replica.files) == 31 and setting.replica.scans > 0)
    scans, lines = setting.replica.scans, len(setting.replica.changes)

    (setting.root / "quiet/17").write_text("in place")
    (setting.root / "aside/gone").unlink()
    (setting.root / "aside/new/deep").mkdir(parents=True)
    (setting.root / "aside/new/deep/file").write_text("1")
    for number in range(1_500):
        (setting.root / f"busy/{number}").write_text("1")
    told.batches.put({f"{setting.root}/busy/{number}" for number in range(watcher.BURST)})
    setting.settle()
    setting.replica.wait(
        lambda: any(
            (change.kind, change.path) == (ChangeKind.CHANGED, "quiet/17")
            for change in setting.replica.changes[lines:]
        )
    )
    setting.stop()
    assert setting.replica.scans == scans, "not everything was looked at"


def test_a_burst_that_was_glanced_at_in_parts_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Overflowing()
    monkeypatch.setattr(watcher, "FileEvents", told.hearing)
    monkeypatch.setattr(watcher, "BURST", 100)
    monkeypatch.setattr(watcher, "MANY_PATHS", 1)
    setting = Setting(tmp_path, None)
    setting.replica.wait(lambda: setting.replica.scans > 0)
    (setting.root / "aside").mkdir()
    (setting.root / "aside/of which nobody told").write_text("1")
    (setting.root / "first").write_text("1")
    parts = [{f"{setting.root}/{part}{number}" for number in range(60)} for part in "ab"]
    told.glances.put((parts[0], parts[1]))
    told.batches.put({f"{setting.root}/first"})
    setting.settle()
    setting.stop()


def _is_young(folder: Path) -> bool:
    """So that a change within the same tick of the clock could leave its times as they are."""
    return SystemClock().now().timestamp() - folder.stat().st_ctime < 0.1


def test_a_local_disk_is_told_of(tmp_path: Path) -> None:
    assert polling_reason(tmp_path) is None
