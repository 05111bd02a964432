"""Stamps of files, and the differences between two scans. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

__all__ = ["ChangeKind", "FileChange", "FileStamp", "compare"]


class FileStamp(NamedTuple):
    """Metadata of a file. Equal stamps mean equal content, except for writes within one clock tick."""

    size: int
    mtime_ns: int
    ctime_ns: int
    """Changes even if a program resets the mtime."""
    inode: int
    device: int

    @property
    def unseen(self) -> bool:
        """True if the file was announced but may not have been reported; see `placeholder`."""
        return self.size < 0

    @classmethod
    def never_seen(cls, device: int) -> FileStamp:
        """Return the placeholder that is stored before a file is reported.

        If the file is gone after a crash, its deletion is reported.
        """
        return cls(-1, -1, -1, 0, device)

    def same_content(self, other: FileStamp) -> bool:
        """True if both stamps describe the same content.

        The device number is not compared, because it may change after a restart.
        """
        return self[:4] == other[:4]

    def same_file(self, other: FileStamp) -> bool:
        """True if the other stamp may be the same file under a new name: a rename changes only the ctime."""
        return (self.inode, self.size, self.mtime_ns, self.device) == (
            other.inode,
            other.size,
            other.mtime_ns,
            other.device,
        )


class ChangeKind(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    MOVED = "moved"
    DELETED = "deleted"


class FileChange(NamedTuple):
    kind: ChangeKind
    path: str
    """Path relative to the folder; for a move, the new path."""
    stamp: FileStamp | None
    """Current stamp; None if the file was deleted."""
    old_path: str | None = None
    """Previous path; set for a move only."""


def compare(known: Mapping[str, FileStamp], found: Mapping[str, FileStamp]) -> list[FileChange]:
    """Return the changes from `known` to `found`, ordered by path; deletions and moves come first."""
    missing = {path: stamp for path, stamp in known.items() if path not in found}
    fresh = {path: stamp for path, stamp in found.items() if path not in known or known[path].unseen}
    moves = _moves(missing, fresh)
    gone = {old for old, _ in moves}
    changes = [
        FileChange(kind=ChangeKind.MOVED, path=new, stamp=fresh[new], old_path=old) for old, new in moves
    ]
    changes += [
        FileChange(kind=ChangeKind.DELETED, path=path, stamp=None) for path in missing if path not in gone
    ]
    arrived = {new for _, new in moves}
    later = [
        FileChange(ChangeKind.CREATED, path, stamp) for path, stamp in fresh.items() if path not in arrived
    ]
    later += [
        FileChange(kind=ChangeKind.CHANGED, path=path, stamp=stamp)
        for path, stamp in found.items()
        if path not in fresh and not stamp.same_content(known[path])
    ]
    return sorted(changes, key=_path) + sorted(later, key=_path)


_path = attrgetter("path")


def _moves(missing: Mapping[str, FileStamp], fresh: Mapping[str, FileStamp]) -> list[tuple[str, str]]:
    """Return pairs (old, new) of moved files. Hard links are ambiguous and not treated as moves."""
    if not missing or not fresh:
        return []
    left: dict[int, list[str]] = {}
    for path, stamp in missing.items():
        left.setdefault(stamp.inode, []).append(path)
    arrived: dict[int, list[str]] = {}
    for path, stamp in fresh.items():
        arrived.setdefault(stamp.inode, []).append(path)
    return [
        (old[0], new[0])
        for inode, new in arrived.items()
        if len(new) == 1 and len(old := left.get(inode, [])) == 1 and missing[old[0]].same_file(fresh[new[0]])
    ]
