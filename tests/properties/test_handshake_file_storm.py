"""A replica built from the reported changes equals the folder, for any changes, lost events and restarts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from threading import Event

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vedette.clock import SystemClock
from vedette.sources.files.file_stamp import ChangeKind, FileChange
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.folder import Folder, ScanOutcome
from vedette.sources.files.selection import FolderSelection

NAMES = st.sampled_from(["a", "b", "a/c", "a/d", "a/e/f", "b/g", "h/i/j"])
TEXTS = st.sampled_from(["", "one", "two", "longer text"])


class FileStorm(RuleBasedStateMachine):
    """Scans any paths at any time. A final scan finds the paths that were left out."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="vedette-storm-"))
        self.root = self.base / "root"
        self.root.mkdir()
        self.replica: dict[str, str] = {}
        self._open()

    def _open(self) -> None:
        self.file_states = FileStateStore(self.base / "folders.db")
        self.folder = Folder("w", self.root, FolderSelection(), self.file_states, SystemClock())

    @rule(name=NAMES, text=TEXTS, append=st.booleans())
    def write(self, name: str, text: str, append: bool) -> None:
        file = self.root / name
        if file.is_dir() or any(parent.is_file() for parent in file.parents):
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a" if append else "w") as opened:
            opened.write(text)

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        source, target = self.root / old, self.root / new
        if (
            not source.exists()
            or any(parent.is_file() for parent in target.parents)
            or f"{new}/".startswith(f"{old}/")
        ):
            return
        if target.is_dir() or (source.is_dir() and target.exists()):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        path = self.root / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()

    @rule(hints=st.sets(NAMES), refused=st.integers(0, 3))
    def scan_hints(self, hints: set[str], refused: int) -> None:
        self._accept(self.folder.scan_paths(hints), refused)

    @rule(confirmed=st.booleans())
    def restart(self, confirmed: bool) -> None:
        """Restart, optionally after a kill between the queue and the record of the seen files."""
        scan = self.folder.full_scan()
        self.folder.mark_pending(scan.changes)
        for change in scan.changes:
            self._apply(change)
        if confirmed:
            self.folder.commit(scan.changes)
        self.file_states.close()
        self._open()

    @invariant()
    def folder_equals_the_stored_states(self) -> None:
        assert len(self.folder) == len(self.file_states.known("w"))

    def teardown(self) -> None:
        try:
            self._compare()
        finally:
            self.file_states.close()
            shutil.rmtree(self.base)

    def _compare(self) -> None:
        scan = self.folder.full_scan()
        self._accept(scan, refused=0)
        while scan.unstable:
            Event().wait(0.06)  # until a later write would change the mtime
            scan = self.folder.scan_paths(scan.unstable)
            self._accept(scan, refused=0)
        actual = {
            str(path.relative_to(self.root)): path.read_text()
            for path in self.root.rglob("*")
            if path.is_file()
        }
        assert self.replica == actual
        assert self.folder.full_scan() == ScanOutcome()

    def _accept(self, scan: ScanOutcome, refused: int) -> None:
        """The first few changes are refused, as when the queue is full."""
        self.folder.mark_pending(scan.changes)
        accepted = scan.changes[refused:]
        for change in accepted:
            self._apply(change)
        self.folder.commit(accepted)

    def _apply(self, change: FileChange) -> None:
        if change.old_path is not None:
            text = self.replica.pop(change.old_path, None)
            if text is not None:
                self.replica[change.path] = text
                return
        if change.kind is ChangeKind.DELETED:
            self.replica.pop(change.path, None)
        else:
            self.replica[change.path] = (self.root / change.path).read_text()


TestFileStorm = FileStorm.TestCase
TestFileStorm.settings = settings(
    max_examples=60, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
