"""The format of a row of `file_tasks`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vedette.search.file_queue.task_table import TaskRecord, TaskTable
from vedette.search.file_queue.tasks import FileOperation, FileTask

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
RECORD = TaskRecord(
    node_id="01H",
    task=FileTask(
        path="/notes/a.md", watch_id="notes", collection="docs", operation=FileOperation.UPDATE, priority=7
    ),
    queued_at=NOW,
    attempts=2,
    due_at=NOW + timedelta(seconds=1),
    lease_until=NOW + timedelta(seconds=2),
    worker_id="daemon-1",
    error="damaged",
    dead_at=NOW + timedelta(seconds=3),
)


def test_golden_row(tmp_path: Path) -> None:
    path = tmp_path / "handshake.db"
    with closing(TaskTable(path)) as table:
        table.write([RECORD])
        assert table.all() == table.of_watch("notes") == [RECORD]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        cursor = db.execute("SELECT * FROM file_tasks")
        assert dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True)) == {
            "number": 1,
            "node_id": "01H",
            "key": "docs\n/notes/a.md",
            "path": "/notes/a.md",
            "watch_id": "notes",
            "collection": "docs",
            "operation": "update",
            "priority": 7,
            "queued_at": "2026-01-02T03:04:05.678Z",
            "attempts": 2,
            "due_at": "2026-01-02T03:04:06.678Z",
            "lease_until": "2026-01-02T03:04:07.678Z",
            "worker_id": "daemon-1",
            "error": "damaged",
            "dead_at": "2026-01-02T03:04:08.678Z",
        }
