"""What was last seen of each file, on disk: `folders.db` in the data directory.

    seen_files    watch_id, path (relative), size, mtime_ns, ctime_ns, inode, device

A file is noted as unseen before it is told of, and as seen when that is safe in the queue. A crash in between tells it
once more after the restart, or tells that it is gone; never nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vedette.sources.files.stamps import FileChange, FileStamp
from vedette.storage.schema import Migration
from vedette.storage.shared_file import SharedFile

__all__ = ["FILE_NAME", "SeenFiles"]

FILE_NAME = "folders.db"
_APPLICATION_ID = 0x5644464F
"""`VDFO`."""
_MIGRATIONS = (
    Migration(
        version=1,
        summary="seen_files",
        statements=(
            """CREATE TABLE seen_files (
                watch_id TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
                ctime_ns INTEGER NOT NULL, inode TEXT NOT NULL, device TEXT NOT NULL,
                PRIMARY KEY (watch_id, path)) WITHOUT ROWID""",
        ),
    ),
)
_PUT = """INSERT INTO seen_files (watch_id, path, size, mtime_ns, ctime_ns, inode, device)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (watch_id, path) DO UPDATE SET size = excluded.size,
    mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns, inode = excluded.inode, device = excluded.device"""
_DELETE = "DELETE FROM seen_files WHERE watch_id = ? AND path = ?"
_COLUMNS = "path, size, mtime_ns, ctime_ns, inode, device"
_ALL = f"SELECT {_COLUMNS} FROM seen_files WHERE watch_id = ?"  # noqa: S608 - names of ours
# "0" is the character after "/": this is everything below the folder, by the index.
_BELOW = f"{_ALL} AND (path = ? OR (path > ? || '/' AND path < ? || '0'))"


class SeenFiles:
    """For all watches of a data directory. Each watch has one folder that writes."""

    def __init__(self, path: Path) -> None:
        self._file = SharedFile(path, _APPLICATION_ID, _MIGRATIONS)

    def known(self, watch_id: str) -> dict[str, FileStamp]:
        with self._file.reading() as db:
            return _stamps(db.execute(_ALL, (watch_id,)))

    def known_below(self, watch_id: str, path: str) -> dict[str, FileStamp]:
        """At the path and below it."""
        with self._file.reading() as db:
            return _stamps(db.execute(_BELOW, (watch_id, path, path, path)))

    def apply(self, watch_id: str, changes: Iterable[FileChange]) -> None:
        """Durable when it returns."""
        changes = list(changes)
        gone = [(watch_id, change.path) for change in changes if change.stamp is None]
        gone += [(watch_id, change.old_path) for change in changes if change.old_path is not None]
        there = [_row(watch_id, change) for change in changes if change.stamp is not None]
        with self._file.writing(durable=True) as db:
            db.executemany(_DELETE, gone)
            db.executemany(_PUT, there)

    def forget(self, watch_id: str) -> None:
        """The watch is gone."""
        with self._file.writing(durable=True) as db:
            db.execute("DELETE FROM seen_files WHERE watch_id = ?", (watch_id,))

    def close(self) -> None:
        self._file.close()


def _row(watch_id: str, change: FileChange) -> tuple[object, ...]:
    stamp = change.stamp
    assert stamp is not None
    # Inode and device are unsigned 64 bits, more than SQLite's integers hold.
    return (
        watch_id,
        change.path,
        stamp.size,
        stamp.mtime_ns,
        stamp.ctime_ns,
        str(stamp.inode),
        str(stamp.device),
    )


def _stamps(rows: Iterable[tuple[str, int, int, int, str, str]]) -> dict[str, FileStamp]:
    return {
        path: FileStamp(size, mtime, ctime, int(inode), int(device))
        for path, size, mtime, ctime, inode, device in rows
    }
