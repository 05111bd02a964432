"""The format of `folders.db`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from vedette.sources.files.file_stamp import ChangeKind, FileChange, FileStamp
from vedette.sources.files.file_state import FileStateStore

STAMP = FileStamp(size=7, mtime_ns=1_700_000_000_000_000_001, ctime_ns=2, inode=2**64 - 1, device=2**63)


def rows(path: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as db:
        cursor = db.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def test_golden_rows(tmp_path: Path) -> None:
    path = tmp_path / "folders.db"
    with closing(FileStateStore(path)) as store:
        store.apply("w", [FileChange(kind=ChangeKind.CREATED, path="a/ü.md", stamp=STAMP)])
        store.mark_pending("w", [("b.md", 2**63)])
        assert rows(path, "seen_files") == [
            {
                "watch_id": "w",
                "path": "a/ü.md",
                "size": 7,
                "mtime_ns": 1_700_000_000_000_000_001,
                "ctime_ns": 2,
                "inode": "18446744073709551615",
                "device": "9223372036854775808",
            }
        ]
        assert rows(path, "announced") == [
            {"number": 1, "watch_id": "w", "files": '[["b.md", 9223372036854775808]]'}
        ]
        known = store.known("w")
        assert known["a/ü.md"] == STAMP
        assert known["b.md"] == FileStamp.never_seen(2**63)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
