"""The last known state of each file, in `folders.db` in the data directory.

    seen_files    watch_id, path (relative), size, mtime_ns, ctime_ns, inode, device
    announced     watch_id, files: new files about to be reported, JSON of [path, device]

New files are announced before they are reported, one row per scan, and recorded as seen once they are queued. After a
crash in between, the file is reported again, or its deletion is. A change is never lost.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from vedette.sources.files.file_stamp import FileChange, FileStamp
from vedette.storage.sqlite.migrations import Migration
from vedette.storage.sqlite.rows import insert_rows, insert_statements
from vedette.storage.sqlite.shared_file import SharedFile

__all__ = ["FILE_NAME", "FileStateStore"]

FILE_NAME = "folders.db"
_APPLICATION_ID = 0x5644464F
"""`VDFO`, the application id of the SQLite file."""
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
    Migration(
        version=2,
        summary="announced",
        statements=(
            """CREATE TABLE announced (
                number INTEGER PRIMARY KEY, watch_id TEXT NOT NULL, files TEXT NOT NULL)""",
        ),
    ),
)
_PUT = insert_statements(
    "seen_files (watch_id, path, size, mtime_ns, ctime_ns, inode, device)",
    "(?, ?, ?, ?, ?, ?, ?)",
    "ON CONFLICT (watch_id, path) DO UPDATE SET size = excluded.size, mtime_ns = excluded.mtime_ns,"
    " ctime_ns = excluded.ctime_ns, inode = excluded.inode, device = excluded.device",
)
_ANNOUNCE = "INSERT INTO announced (watch_id, files) VALUES (?, ?)"
_ANNOUNCED = "SELECT files FROM announced WHERE watch_id = ? ORDER BY number"
_END_ANNOUNCED = "DELETE FROM announced WHERE watch_id = ?"
_DELETE = "DELETE FROM seen_files WHERE watch_id = ? AND path = ?"
_COLUMNS = "path, size, mtime_ns, ctime_ns, inode, device"
_ALL = f"SELECT {_COLUMNS} FROM seen_files WHERE watch_id = ?"  # noqa: S608 - constant names
# "0" is the character after "/", so this range covers everything below the folder and uses the index.
_BELOW = f"{_ALL} AND (path = ? OR (path > ? || '/' AND path < ? || '0'))"


class FileStateStore:
    """State of all watches of a data directory. Each watch has one writer."""

    def __init__(self, path: Path) -> None:
        self.directory = path.parent
        """`place` is the data directory."""
        self._file = SharedFile(path, _APPLICATION_ID, _MIGRATIONS)

    def known(self, watch_id: str) -> dict[str, FileStamp]:
        """Return the known files of a watch. A file that was announced and not recorded since is a placeholder."""
        with self._file.write_transaction(durable=True) as db:
            _note_announced(db, watch_id)
            return _stamps(db.execute(_ALL, (watch_id,)))

    def known_below(self, watch_id: str, path: str) -> dict[str, FileStamp]:
        """Return the known files at the path and below it."""
        with self._file.read_transaction() as db:
            return _stamps(db.execute(_BELOW, (watch_id, path, path, path)))

    def mark_pending(self, watch_id: str, files: Iterable[tuple[str, int]]) -> None:
        """Record that new files (path and device) are about to be reported. Durable when this returns."""
        text = json.dumps(list(files), ensure_ascii=False)
        with self._file.write_transaction(durable=True) as db:
            db.execute(_ANNOUNCE, (watch_id, text))

    def apply(self, watch_id: str, changes: Iterable[FileChange]) -> None:
        """Record these files as reported. Other announced files become placeholders, because they may have been
        reported.

        A power failure may undo the last call; then the files are reported again.
        """
        changes = list(changes)
        gone = [(watch_id, change.path) for change in changes if change.stamp is None]
        gone += [(watch_id, change.old_path) for change in changes if change.old_path is not None]
        there = [_row(watch_id, change.path, change.stamp) for change in changes if change.stamp is not None]
        with self._file.write_transaction() as db:
            _note_announced(db, watch_id, {change.path for change in changes})
            if gone:
                db.executemany(_DELETE, gone)
            insert_rows(db, _PUT, there)

    def delete_watch(self, watch_id: str) -> None:
        """Delete the state of a removed watch."""
        with self._file.write_transaction(durable=True) as db:
            db.execute("DELETE FROM seen_files WHERE watch_id = ?", (watch_id,))
            db.execute(_END_ANNOUNCED, (watch_id,))

    def close(self) -> None:
        self._file.close()


def _note_announced(
    db: sqlite3.Connection, watch_id: str, reported: frozenset[str] | set[str] = frozenset()
) -> None:
    """Clear the announcements: every announced file that was not reported is now a placeholder in the table."""
    unseen = {
        path: _row(watch_id, path, FileStamp.never_seen(device))
        for (text,) in db.execute(_ANNOUNCED, (watch_id,))
        for path, device in json.loads(text)
        if path not in reported
    }
    insert_rows(db, _PUT, list(unseen.values()))
    db.execute(_END_ANNOUNCED, (watch_id,))


def _row(watch_id: str, path: str, stamp: FileStamp) -> tuple[object, ...]:
    # Inode and device are text, because they are unsigned 64-bit numbers and SQLite's integers are signed.
    return watch_id, path, stamp.size, stamp.mtime_ns, stamp.ctime_ns, str(stamp.inode), str(stamp.device)


def _stamps(rows: Iterable[tuple[str, int, int, int, str, str]]) -> dict[str, FileStamp]:
    return {
        path: FileStamp(size, mtime, ctime, int(inode), int(device))
        for path, size, mtime, ctime, inode, device in rows
    }
