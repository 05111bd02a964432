"""Scan a folder: every included file with its stamp, and the paths that could not be read.

`scan` visits everything. `rescan` visits only folders with hints: creating, deleting or renaming an entry changes the
mtime of its folder. Writing a file in place does not.

Links: a link to a file or folder inside the root is skipped, because the target is visited under its own name. A link
to a folder outside is followed, but links inside that folder are not, so loops are impossible. Only regular files are
included: opening a named pipe would block.

Vedette's own data directory is never entered, under any name or link. Reading its tables as files would be harmful:
closing a file drops the locks that SQLite holds on it in this process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from vedette.sources.files.file_stamp import FileStamp
from vedette.sources.files.selection import FolderSelection

__all__ = ["FolderStamp", "Listing", "Scan", "missing_ancestors", "rescan", "scan", "stamp_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Entries below a start. The state of everything below `unreadable` is unknown, including whether it still
    exists."""

    found: dict[str, FileStamp] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Path to error text."""
    listed: dict[str, Listing] = field(default_factory=dict)
    """Folders whose files were checked."""
    unchanged_folders: set[str] = field(default_factory=set)
    """Folders whose listing is unchanged and whose files were skipped."""


@dataclass(frozen=True, slots=True)
class _Folder:
    path: str
    """Relative path; "" is the root."""
    through_link: bool


class FolderStamp(NamedTuple):
    """Metadata of a folder. Equal stamps mean equal entries, except for changes within one clock tick."""

    mtime_ns: int
    ctime_ns: int
    """Changes if the folder is renamed or its permissions change."""
    inode: int
    device: int

    def same_folder(self, other: FolderStamp) -> bool:
        return (self.inode, self.device) == (other.inode, other.device)


@dataclass(frozen=True, slots=True)
class Listing:
    stamp: FolderStamp
    """Stamp taken before the entries were read."""
    folders: tuple[_Folder, ...]
    """Subfolders that are entered."""


def scan(
    root: Path, selection: FolderSelection, starts: Iterable[str] = ("",), never: Path | None = None
) -> Scan:
    """Return everything at and below the starts, with paths relative to the root. A missing start adds nothing.

    The folder `never` is not entered.
    """
    result, access = Scan(), _FolderAccess(root, selection, never)
    for start in starts:
        folder = _Folder("", False) if start == "" else _entered(access, start, result)
        waiting = [] if folder is None else [folder]
        while waiting:
            waiting.extend(_scan_folder(access, waiting.pop(), result))
    return result


def rescan(
    root: Path,
    selection: FolderSelection,
    listed: Mapping[str, Listing],
    notified_folders: Collection[str],
    never: Path | None = None,
) -> Scan:
    """Scan everything except files of folders that are unchanged since they were `listed` and have no hint."""
    result, access = Scan(), _FolderAccess(root, selection, never)
    waiting = [(_Folder("", False), True)]
    while waiting:
        folder, same = waiting.pop()
        before = listed.get(folder.path) if same else None  # listings of another root do not apply
        stamp = None if before is None else _folder_stamp(access, folder)
        if before is not None and stamp == before.stamp and folder.path not in notified_folders:
            result.unchanged_folders.add(folder.path)
            below: Iterable[_Folder] = before.folders
        else:
            below = _scan_folder(access, folder, result)
        same = before is not None and stamp is not None and stamp.same_folder(before.stamp)
        waiting.extend((each, same) for each in below)
    return result


def stamp_of(status: os.stat_result) -> FileStamp:
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


def missing_ancestors(folder: str, known: Collection[str]) -> list[str]:
    """Resolve the folder and its parents up to the first known one. A loop, so depth does not matter."""
    access = []
    while folder not in known:
        access.append(folder)
        folder = folder.rpartition("/")[0]
    return access


class _FolderAccess:
    """True if a folder is entered, from the root on. Computed once per folder."""

    def __init__(self, root: Path, selection: FolderSelection, never: Path | None) -> None:
        self.root, self.real_root, self.selection = str(root), os.path.realpath(root), selection
        self._real_never = None if never is None else os.path.realpath(never)
        self._never = None if never is None else _identity(never)
        is_never = self._never is not None and _identity(root) == self._never
        self._through_link: dict[str, bool | None] = {"": None if is_never else False}

    def into(self, folder: str) -> bool | None:
        """Return whether the path leads through a link; None if it is excluded."""
        if folder in self._through_link:
            return self._through_link[folder]
        for each in reversed(missing_ancestors(folder, self._through_link)):
            above = self._through_link[each.rpartition("/")[0]]
            entered = above is not None and self.selection.descends_into(each)
            self._through_link[each] = self._past(each, above) if above is not None and entered else None
        return self._through_link[folder]

    def past_link(self, path: str, through_link: bool) -> bool | None:
        """Return the same for a link. `through_link` is the value of its folder."""
        return None if through_link or self.leads_nowhere(f"{self.root}/{path}") else True

    def leads_nowhere(self, link: str) -> bool:
        """True if the target of a link has its own name below the root, or is excluded."""
        target = os.path.realpath(link)
        never = self._real_never is not None and f"{target}/".startswith(f"{self._real_never}/")
        return never or _inside(target, self.real_root)

    def is_never(self, device: int, inode: int) -> bool:
        """True if this is the excluded folder, under any name."""
        return (device, inode) == self._never

    def _past(self, folder: str, through_link: bool) -> bool | None:
        try:
            status = os.lstat(f"{self.root}/{folder}")
        except OSError:
            return through_link  # the stat that follows reports the error
        if stat.S_ISLNK(status.st_mode):
            return self.past_link(folder, through_link)
        return None if self.is_never(status.st_dev, status.st_ino) else through_link


def _entered(access: _FolderAccess, start: str, result: Scan) -> _Folder | None:
    """Return the start if it is a folder to enter; record a file immediately."""
    through_link = access.into(start.rpartition("/")[0])
    if through_link is None:
        return None
    path = f"{access.root}/{start}"
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            status = os.stat(path)  # noqa: PTH116 - of many files, and twice as fast
            # As in `_look_at`: behind a link to a folder, links to files are included and links to folders are not.
            through_link = access.past_link(start, through_link and stat.S_ISDIR(status.st_mode))
            if through_link is None:
                return None
    except OSError as error:
        _note_problem(start, error, result)
        return None
    if stat.S_ISREG(status.st_mode):
        if access.selection.includes(start):
            result.found[start] = stamp_of(status)
    elif stat.S_ISDIR(status.st_mode) and access.selection.descends_into(start):
        return _Folder(start, through_link)
    return None


def _scan_folder(access: _FolderAccess, folder: _Folder, result: Scan) -> list[_Folder]:
    """Record the files of one folder and return the subfolders to enter."""
    stamp = _folder_stamp(access, folder)
    if stamp is not None and access.is_never(stamp.device, stamp.inode):
        return []
    try:
        with os.scandir(f"{access.root}/{folder.path}") as entries:
            listed = list(entries)
    except OSError as error:
        _note_problem(folder.path, error, result)
        return []
    below = [each for entry in listed if (each := _scan_entry(access, folder, entry, result)) is not None]
    if stamp is not None:
        result.listed[folder.path] = Listing(stamp, tuple(below))
    return below


def _scan_entry(
    access: _FolderAccess, folder: _Folder, entry: os.DirEntry[str], result: Scan
) -> _Folder | None:
    """Record the entry if it is a file; return it if it is a folder to enter."""
    path = f"{folder.path}/{entry.name}" if folder.path else entry.name
    if not _is_text(entry.name):
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        result.unreadable[shown] = "its name is not UTF-8"
        return None
    try:
        link = entry.is_symlink()
        if link and (folder.through_link and entry.is_dir()):
            return None
        if link and access.leads_nowhere(entry.path):
            return None
        if entry.is_dir():
            return (
                _Folder(path, folder.through_link or link) if access.selection.descends_into(path) else None
            )
        if access.selection.includes(path) and entry.is_file():
            result.found[path] = stamp_of(entry.stat())
    except OSError as error:
        _note_problem(path, error, result)
    return None


def _folder_stamp(access: _FolderAccess, folder: _Folder) -> FolderStamp | None:
    """Return the stamp of a folder; None if it cannot be read. Listing the folder then reports the reason."""
    try:
        status = os.stat(f"{access.root}/{folder.path}")  # noqa: PTH116 - of many, and twice as fast
    except OSError:
        return None
    return FolderStamp(status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _note_problem(path: str, error: OSError, result: Scan) -> None:
    """A file that disappears during the scan counts as deleted; any other failure leaves its state unknown."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        result.unreadable[path] = error.strerror or str(error)


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/") or root.startswith(path.rstrip("/") + "/")


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
