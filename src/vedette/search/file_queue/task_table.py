"""The table `file_tasks` of `handshake.db`, which the view `ingestion_queue` shows.

The queue's owner writes the table; any process may read it. The task nodes of the graph are authoritative: the table is
derived from them and rebuilt when the owner starts. `handshake/tables/schema.py` describes its columns and has its
version.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from vedette.handshake.tables.schema import APPLICATION_ID, MIGRATIONS, TASK_ORDER, task_status
from vedette.search.file_queue.tasks import FileOperation, FileTask, TaskStatus, TaskView
from vedette.storage.sqlite.rows import insert_rows, insert_statements
from vedette.storage.sqlite.shared_file import SharedFile
from vedette.values import timestamp_from_text, timestamp_to_text

__all__ = ["TaskRecord", "TaskTable"]

_COLUMNS = (
    "node_id",
    "key",
    "path",
    "watch_id",
    "collection",
    "operation",
    "priority",
    "queued_at",
    "attempts",
    "due_at",
    "lease_until",
    "worker_id",
    "error",
    "dead_at",
)
"""The format of a row, in the order of `_column_values`."""
# These statements contain no text except the constants above, hence the `noqa` marks.
_UPSERT = insert_statements(
    f"file_tasks ({', '.join(_COLUMNS)})",
    f"({', '.join('?' * len(_COLUMNS))})",
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS if name != 'key')}",
)
_DELETE = "DELETE FROM file_tasks WHERE key IN (SELECT value FROM json_each(?))"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM file_tasks"  # noqa: S608


class TaskRecord(NamedTuple):
    """One task as its owner last saw it. A tuple, because it is cheaper to create than a frozen dataclass."""

    node_id: str
    """Id of the task's node. A dead letter keeps the id of its former node."""
    task: FileTask
    queued_at: datetime
    attempts: int = 0
    """Failed attempts."""
    due_at: datetime | None = None
    """The task is delayed until this time."""
    lease_until: datetime | None = None
    """The task is claimed until this time."""
    worker_id: str | None = None
    error: str | None = None
    """Text of the last failure."""
    dead_at: datetime | None = None
    """When the task became a dead letter."""

    def without_lease(self) -> TaskRecord:
        """Return a copy that is not claimed."""
        return self._replace(lease_until=None, worker_id=None)

    def status(self, now: datetime) -> TaskStatus:
        """`task_status` in `handshake/tables/schema.py` is the same rule in SQL."""
        if self.dead_at is not None:
            return TaskStatus.DEAD
        if self.lease_until is not None and self.lease_until > now:
            return TaskStatus.IN_PROGRESS
        return TaskStatus.DELAYED if self.due_at is not None and self.due_at > now else TaskStatus.PENDING

    def view(self, now: datetime) -> TaskView:
        status = self.status(now)
        is_claimed = status is TaskStatus.IN_PROGRESS
        return TaskView(
            task=self.task,
            status=status,
            queued_at=self.queued_at,
            attempts=self.attempts,
            due_at=self.due_at if status is TaskStatus.DELAYED else None,
            lease_until=self.lease_until if is_claimed else None,
            worker_id=self.worker_id if is_claimed else None,
            error=self.error,
        )


class TaskTable:
    """Used by any number of threads and processes. Only the queue's owner writes."""

    def __init__(self, path: Path) -> None:
        self._file = SharedFile(path, APPLICATION_ID, MIGRATIONS)

    def close(self) -> None:
        self._file.close()

    # For the owner

    def replace_all(self, records: Iterable[TaskRecord]) -> None:
        with self._file.write_transaction() as db:
            db.execute("DELETE FROM file_tasks")
            insert_rows(db, _UPSERT, list(map(_column_values, records)))

    def write(self, records: Iterable[TaskRecord], removed_keys: Sequence[str] = ()) -> None:
        """Insert or replace records and delete the rows of `removed_keys`, in one transaction."""
        rows = list(map(_column_values, records))
        with self._file.write_transaction() as db:
            if removed_keys:
                db.execute(_DELETE, (json.dumps(removed_keys),))
            insert_rows(db, _UPSERT, rows)

    def all(self) -> list[TaskRecord]:
        with self._file.read_transaction() as db:
            return list(_select_records(db, _SELECT, ()))

    # For any process

    def of_watch(self, watch_id: str) -> list[TaskRecord]:
        with self._file.read_transaction() as db:
            return list(_select_records(db, f"{_SELECT} WHERE watch_id = ?", (watch_id,)))

    def list_tasks(
        self, now: datetime, *, status: TaskStatus | None = None, limit: int = 100
    ) -> list[TaskView]:
        """In the order of high-first claims, dead letters last."""
        condition = "" if status is None else f"WHERE {task_status(':now')} = :status"
        query = f"{_SELECT} {condition} ORDER BY {TASK_ORDER} LIMIT :limit"
        values = {"now": timestamp_to_text(now), "status": status, "limit": limit}
        with self._file.read_transaction() as db:
            return [record.view(now) for record in _select_records(db, query, values)]

    def count_by_status(self, now: datetime) -> Mapping[str, Mapping[TaskStatus, int]]:
        """Number of tasks by collection and status."""
        query = f"SELECT collection, {task_status(':now')} AS status, count(*) FROM file_tasks GROUP BY 1, 2"  # noqa: S608
        counts: dict[str, dict[TaskStatus, int]] = {}
        with self._file.read_transaction() as db:
            for collection, status, count in db.execute(query, {"now": timestamp_to_text(now)}):
                counts.setdefault(collection, {})[TaskStatus(status)] = count
        return counts


def _column_values(record: TaskRecord) -> tuple[Any, ...]:
    task = record.task
    return (
        record.node_id,
        task.key,
        task.path,
        task.watch_id,
        task.collection,
        str(task.operation),
        task.priority,
        _timestamp_text(record.queued_at),
        record.attempts,
        _timestamp_text(record.due_at),
        _timestamp_text(record.lease_until),
        record.worker_id,
        record.error,
        _timestamp_text(record.dead_at),
    )


def _select_records(
    db: sqlite3.Connection, query: str, values: Sequence[Any] | Mapping[str, Any]
) -> Iterator[TaskRecord]:
    with closing(db.cursor()) as cursor:
        cursor.row_factory = sqlite3.Row
        for row in cursor.execute(query, values):
            yield TaskRecord(
                node_id=row["node_id"],
                task=FileTask(
                    path=row["path"],
                    watch_id=row["watch_id"],
                    collection=row["collection"],
                    operation=FileOperation(row["operation"]),
                    priority=row["priority"],
                ),
                queued_at=timestamp_from_text(row["queued_at"]),
                attempts=row["attempts"],
                due_at=_parse_timestamp(row["due_at"]),
                lease_until=_parse_timestamp(row["lease_until"]),
                worker_id=row["worker_id"],
                error=row["error"],
                dead_at=_parse_timestamp(row["dead_at"]),
            )


@lru_cache(maxsize=1_000)
def _timestamp_text(timestamp: datetime | None) -> str | None:
    """Cached, because all tasks of one put have the same timestamp."""
    return None if timestamp is None else timestamp_to_text(timestamp)


def _parse_timestamp(text: str | None) -> datetime | None:
    return None if text is None else timestamp_from_text(text)
