"""One watched folder: scans paths or the whole folder and returns the changes since the last known state.

A deletion is confirmed before it is reported. A missing file counts as deleted only if its disk is present: the
parent folder is on the same device, or other files last seen on that device are still found. An unmounted disk leaves
an empty folder on another device, and a folder that is gone or unreadable says nothing about its files. In these
cases the source is down and no file counts as deleted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from vedette.clock import Clock
from vedette.sources.files.file_stamp import FileChange, FileStamp, compare
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.scan import Listing, Scan, missing_ancestors, rescan, scan
from vedette.sources.files.selection import FolderSelection
from vedette.values import timestamp_to_ms

__all__ = ["Folder", "ScanOutcome"]

UNSETTLED_MS = 50
"""A file that was written this recently may change again without a visible difference: check it once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOutcome:
    """Result of one scan. Call `Folder.mark_pending` before reporting the changes, and `record` or `confirm` once
    they are queued."""

    changes: tuple[FileChange, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Error text by path. The state of files below such a path is unknown; they are neither changed nor deleted."""
    unavailable_reason: str | None = None
    """Why the folder or a disk below it is missing; None if it is available."""
    unstable: frozenset[str] = frozenset()
    """Paths to check again soon."""
    unchecked: tuple[str, ...] = ()
    """Files that a rescan skipped: only a stat of each shows whether it was written in place."""


class Folder:
    def __init__(
        self, watch_id: str, root: Path, selection: FolderSelection, seen: FileStateStore, clock: Clock
    ) -> None:
        self.watch_id, self.root, self.selection = watch_id, root, selection
        self._seen, self._clock = seen, clock
        self._known = seen.known(watch_id)
        self._announced = False
        """True if an announcement is not confirmed yet."""
        self._noted: list[FileChange] = []
        """Recorded changes that are not written to disk yet."""
        self._folders: Counter[str] = Counter()
        """Number of known files below each folder."""
        self._count_folders(self._known, 1)
        self._listed: dict[str, Listing] = {}
        """Folders whose files were compared, with their stamps at that time."""

    def __len__(self) -> int:
        """Number of known files."""
        return len(self._known)

    @property
    def unwritten(self) -> int:
        """Number of changes that are recorded but not confirmed."""
        return len(self._noted)

    def full_scan(self) -> ScanOutcome:
        """Compare the whole folder with the known state."""
        self._listed.clear()
        return self.rescan(())

    def rescan(self, notified_folders: Collection[str]) -> ScanOutcome:
        """Compare the folders in `notified_folders` (relative to the root) and every folder whose entries changed.

        Files of other folders are returned in `left`.
        """
        down, began = self._root_problem(), self._now_ms()
        if down is not None:
            return ScanOutcome(unavailable_reason=down)
        result = rescan(self.root, self.selection, self._listed, notified_folders, self._seen.directory)
        if "" in result.unreadable:
            return ScanOutcome(unavailable_reason=f"{self.root} may not be read: {result.unreadable['']}")
        self._remember(result, began)
        known, left = self._known, list[str]()
        if result.unchanged_folders:
            left = [path for path in self._known if path.rpartition("/")[0] in result.unchanged_folders]
            known = {path: self._known[path] for path in self._known.keys() - left}
        alive = {stamp.device for path, stamp in known.items() if path in result.found}
        return replace(self._compared(known, result, alive), unchecked=tuple(left))

    def _remember(self, result: Scan, began: int) -> None:
        """A folder that changed just now may change again within the same clock tick, so its stamp is not kept."""
        kept = {path: self._listed[path] for path in result.unchanged_folders}
        settled = 1_000_000 * (began - UNSETTLED_MS)
        kept |= {path: each for path, each in result.listed.items() if each.stamp.ctime_ns < settled}
        self._listed = kept

    def scan_paths(self, paths: Iterable[str]) -> ScanOutcome:
        """Compare these paths, relative to the root, and everything below them with the known state."""
        down = self._root_problem()
        if down is not None:
            return ScanOutcome(unavailable_reason=down)
        starts = _topmost(paths)
        if "" in starts:
            return self.full_scan()
        if not self._folders.keys().isdisjoint(starts):
            self.commit(())  # query the table for entries below a folder
        result = scan(self.root, self.selection, starts, self._seen.directory)
        known = dict[str, FileStamp]()
        for path in starts:
            if path in self._folders:
                known.update(self._seen.known_below(self.watch_id, path))
            elif path in self._known:
                known[path] = self._known[path]
        return self._compared(known, result, alive=set())

    def mark_pending(self, changes: Iterable[FileChange]) -> None:
        """Record that these changes are about to be reported. Durable when this returns.

        After a crash between reporting and `confirm`, the deletion of a new file could otherwise never be reported.
        Therefore a new file is recorded first, as a placeholder.
        """
        new = [
            (change.path, change.stamp.device)
            for change in changes
            if change.stamp is not None and change.path not in self._known
        ]
        if new:
            self._announced = True
            self._seen.mark_pending(self.watch_id, new)
            unseen = {device: FileStamp.never_seen(device) for device in {device for _, device in new}}
            self._know({path: unseen[device] for path, device in new})

    def commit(self, changes: Iterable[FileChange]) -> None:
        """Record changes that are now queued. Other announced files stay placeholders."""
        self.record(changes)
        if self._noted or self._announced:
            self._seen.apply(self.watch_id, self._noted)
            self._noted, self._announced = [], False

    def record(self, changes: Iterable[FileChange]) -> None:
        """Record changes like `commit`, but write them together with the next commit.

        After a crash before that, the changes are reported again.
        """
        changes = list(changes)
        self._noted += changes
        there: dict[str, FileStamp] = {}
        for _, path, stamp, old_path in changes:
            if stamp is not None:
                there[path] = stamp
            gone = path if stamp is None else old_path
            if gone is not None:
                there.pop(gone, None)
                self._forget(gone)
        self._know(there)

    def _know(self, files: Mapping[str, FileStamp]) -> None:
        self._count_folders([path for path in files if path not in self._known], 1)
        self._known.update(files)

    def _forget(self, path: str) -> None:
        if self._known.pop(path, None) is not None:
            self._count_folders((path,), -1)

    def _count_folders(self, paths: Iterable[str], step: int) -> None:
        for above, files in Counter([path.rpartition("/")[0] for path in paths]).items():
            folder = above
            while folder:
                self._folders[folder] += step * files
                if not self._folders[folder]:
                    del self._folders[folder]
                folder = folder.rpartition("/")[0]

    def relatives(self, paths: Iterable[str]) -> set[str]:
        """Convert paths of the operating system to paths relative to the root, by the real folder if it is inside the
        root.

        The kernel may report either name of a folder with two names; only one of them is ours.
        """
        root, real_root = str(self.root), os.path.realpath(self.root)
        starts: dict[str, str | None] = {}
        """Prefix of the watched paths in a folder; None if the folder is not below the root."""
        found = set()
        for path in paths:
            folder, _, name = path.rpartition("/")
            if folder not in starts:
                below = _below(os.path.realpath(folder or "/"), real_root)
                below = _below(folder, root) if below is None else below
                starts[folder] = f"{below}/" if below else below
            start = starts[folder]
            if start is not None:
                found.add(start + name)
            elif path == root or f"{os.path.realpath(folder or '/').rstrip('/')}/{name}" == real_root:
                found.add("")
        return found

    def identity(self) -> tuple[int, int] | None:
        """Return the identity of the folder that is now at the root; None if there is none."""
        try:
            status = self.root.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _root_problem(self) -> str | None:
        try:
            if self.root.is_dir():
                return None
            gone = not self.root.exists()
        except OSError as error:
            return f"{self.root} cannot be looked at: {error.strerror or error}"
        return f"{self.root} is not there" if gone else f"{self.root} is no folder"

    def _compared(self, known: Mapping[str, FileStamp], result: Scan, alive: set[int]) -> ScanOutcome:
        visible = {path: stamp for path, stamp in known.items() if not _below_any(path, result.unreadable)}
        doubtful = self._possibly_unmounted(visible, result.found, alive)
        certain = {path: stamp for path, stamp in visible.items() if path not in doubtful}
        changes = compare(certain, result.found)
        now = self._now_ms()
        since, until = 1_000_000 * (now - UNSETTLED_MS), 1_000_000 * (now + UNSETTLED_MS + 1)
        unsettled: list[str] = []
        for place, (_, path, stamp, _) in enumerate(changes):
            if stamp is not None and since <= stamp.mtime_ns < until:
                unsettled.append(path)
                changes[place] = _without_ctime(changes[place])
        down = f"{len(doubtful)} files are missing with the disk they were on" if doubtful else None
        return ScanOutcome(
            changes=tuple(changes),
            unreadable=result.unreadable,
            unavailable_reason=down,
            unstable=frozenset(unsettled),
        )

    def _now_ms(self) -> int:
        return timestamp_to_ms(self._clock.now())

    def _possibly_unmounted(
        self, known: Mapping[str, FileStamp], found: Mapping[str, FileStamp], alive: set[int]
    ) -> set[str]:
        """Return the missing files whose disk may be unmounted."""
        devices: dict[str, int | None] = {}
        return {
            path
            for path, stamp in known.items()
            if path not in found
            and stamp.device not in alive
            and self._device_above(path, devices) != stamp.device
        }

    def _device_above(self, path: str, devices: dict[str, int | None]) -> int | None:
        """Return the device of the nearest existing parent folder."""
        folder = path.rpartition("/")[0]
        missing = list[str]()
        while folder not in devices:
            try:
                devices[folder] = (self.root / folder).stat().st_dev
            except OSError:
                missing.append(folder)
                if not folder:
                    devices[folder] = None
                folder = folder.rpartition("/")[0]
        devices.update(dict.fromkeys(missing, devices[folder]))
        return devices[folder]


def _below(path: str, root: str) -> str | None:
    """Return the path relative to the root, "" for the root itself; None if it is outside."""
    if path == root:
        return ""
    start = root.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None


def _topmost(paths: Iterable[str]) -> list[str]:
    """Remove paths below another path of the set: scanning a folder covers everything below it."""
    given = set(paths)
    covered: dict[str, bool] = {"": False}
    """Whether a folder or one of its parents is in the set, by folder."""
    for folder in {path.rpartition("/")[0] for path in given}:
        for each in reversed(missing_ancestors(folder, covered)):
            covered[each] = each in given or covered[each.rpartition("/")[0]]
    return sorted(path for path in given if not covered[path.rpartition("/")[0]])


def _below_any(path: str, folders: Mapping[str, str]) -> bool:
    if not folders:
        return False
    parts = path.split("/")
    return any("/".join(parts[:length]) in folders for length in range(1, len(parts) + 1))


def _without_ctime(change: FileChange) -> FileChange:
    """Return a stamp that differs from any real one, so that the next scan reports a change."""
    assert change.stamp is not None
    size, mtime_ns, _, inode, device = change.stamp
    return change._replace(stamp=FileStamp(size, mtime_ns, -1, inode, device))
