"""The rows behind the view `ingestion_queue`: written by the owner of the queue, readable by any process.

The task nodes of the graph are authoritative. This table in `handshake.db` is derived from them and rebuilt when the
owner starts.
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

# Statements are built from the constants here only, hence the `noqa`s.
_AT_ONCE = 500
"""Keys in one SELECT."""
_COLUMNS = (
    "element",
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
_PUT = insert_statements(
    f"file_tasks ({', '.join(_COLUMNS)})",
    f"({', '.join('?' * len(_COLUMNS))})",
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS if name != 'key')}",
)
_END = "DELETE FROM file_tasks WHERE key IN (SELECT value FROM json_each(?))"
_GET = f"SELECT {', '.join(_COLUMNS)} FROM file_tasks"  # noqa: S608


class TaskRecord(NamedTuple):
    """One task as its owner last saw it. A tuple, because there are many and it is cheaper to create."""

    element: str
    """Id of its node, also if it is a dead letter now."""
    task: FileTask
    queued_at: datetime
    attempts: int = 0
    due_at: datetime | None = None
    lease_until: datetime | None = None
    worker_id: str | None = None
    error: str | None = None
    dead_at: datetime | None = None

    def without_lease(self) -> TaskRecord:
        """A copy without a lease."""
        return self._replace(lease_until=None, worker_id=None)


class TaskTable:
    """Used by any number of threads and processes; one of them, the owner, writes tasks."""

    def __init__(self, path: Path) -> None:
        self._file = SharedFile(path, APPLICATION_ID, MIGRATIONS)

    def close(self) -> None:
        self._file.close()

    # ---- the owner's side

    def replace_all(self, images: Iterable[TaskRecord]) -> None:
        with self._file.write_transaction() as db:
            db.execute("DELETE FROM file_tasks")
            insert_rows(db, _PUT, list(map(_values, images)))

    def write(self, images: Iterable[TaskRecord], gone: Sequence[str] = ()) -> None:
        """`gone` are the keys of deleted tasks."""
        rows = list(map(_values, images))
        with self._file.write_transaction() as db:
            if gone:
                db.execute(_END, (json.dumps(gone),))
            insert_rows(db, _PUT, rows)

    def by_key(self, keys: Sequence[str]) -> dict[str, TaskRecord]:
        found: dict[str, TaskRecord] = {}
        with self._file.read_transaction() as db:
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                marks = ", ".join("?" * len(some))
                for image in _images(db, f"{_GET} WHERE key IN ({marks})", some):
                    found[image.task.key] = image
        return found

    def all(self) -> list[TaskRecord]:
        with self._file.read_transaction() as db:
            return list(_images(db, _GET, ()))

    def of_watch(self, watch_id: str) -> list[TaskRecord]:
        with self._file.read_transaction() as db:
            return list(_images(db, f"{_GET} WHERE watch_id = ?", (watch_id,)))

    def dead(self, path: str | None = None) -> list[TaskRecord]:
        where, values = ("", ()) if path is None else (" AND path = ?", (path,))
        with self._file.read_transaction() as db:
            return list(_images(db, f"{_GET} WHERE dead_at IS NOT NULL{where}", values))

    # ---- anybody's side

    def rows(self, now: datetime, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        """In claim order; dead letters last."""
        wanted = "" if status is None else "WHERE status = :status"
        query = f"""SELECT * FROM (SELECT *, {task_status(":now")} AS status FROM file_tasks) {wanted}
            ORDER BY {TASK_ORDER} LIMIT :limit"""  # noqa: S608
        values = {"now": timestamp_to_text(now), "status": status, "limit": limit}
        with self._file.read_transaction() as db, closing(db.cursor()) as cursor:
            cursor.row_factory = sqlite3.Row
            return [_row(found) for found in cursor.execute(query, values)]

    def counts(self, now: datetime) -> Mapping[str, Mapping[TaskStatus, int]]:
        """By collection and status."""
        query = f"SELECT collection, {task_status(':now')} AS status, count(*) FROM file_tasks GROUP BY 1, 2"  # noqa: S608
        found: dict[str, dict[TaskStatus, int]] = {}
        with self._file.read_transaction() as db:
            for collection, status, count in db.execute(query, {"now": timestamp_to_text(now)}):
                found.setdefault(collection, {})[TaskStatus(status)] = count
        return found


def _values(image: TaskRecord) -> tuple[Any, ...]:
    task = image.task
    return (
        image.element,
        task.key,
        task.path,
        task.watch_id,
        task.collection,
        str(task.operation),
        task.priority,
        _text(image.queued_at),
        image.attempts,
        _text(image.due_at),
        _text(image.lease_until),
        image.worker_id,
        image.error,
        _text(image.dead_at),
    )


def _images(db: sqlite3.Connection, query: str, values: Sequence[Any]) -> Iterator[TaskRecord]:
    with closing(db.cursor()) as cursor:
        cursor.row_factory = sqlite3.Row
        for found in cursor.execute(query, values):
            yield TaskRecord(
                element=found["element"],
                task=_task(found),
                queued_at=timestamp_from_text(found["queued_at"]),
                attempts=found["attempts"],
                due_at=_moment(found["due_at"]),
                lease_until=_moment(found["lease_until"]),
                worker_id=found["worker_id"],
                error=found["error"],
                dead_at=_moment(found["dead_at"]),
            )


def _row(found: sqlite3.Row) -> TaskView:
    status = TaskStatus(found["status"])
    leased = status is TaskStatus.IN_PROGRESS
    return TaskView(
        task=_task(found),
        status=status,
        queued_at=timestamp_from_text(found["queued_at"]),
        attempts=found["attempts"],
        due_at=_moment(found["due_at"]) if status is TaskStatus.DELAYED else None,
        lease_until=_moment(found["lease_until"]) if leased else None,
        worker_id=found["worker_id"] if leased else None,
        error=found["error"],
    )


def _task(found: sqlite3.Row) -> FileTask:
    return FileTask(
        path=found["path"],
        watch_id=found["watch_id"],
        collection=found["collection"],
        operation=FileOperation(found["operation"]),
        priority=found["priority"],
    )


@lru_cache(maxsize=1_000)
def _text(moment: datetime | None) -> str | None:
    """Tasks put together share their timestamps."""
    return None if moment is None else timestamp_to_text(moment)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else timestamp_from_text(text)
