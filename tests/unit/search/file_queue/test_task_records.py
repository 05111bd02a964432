"""Task records in memory agree with the table that the background thread writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from vedette.search.file_queue.task_records import TaskRecords
from vedette.search.file_queue.task_table import TaskRecord, TaskTable
from vedette.search.file_queue.tasks import FileOperation, FileTask, TaskStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(path: str, **fields: object) -> TaskRecord:
    operation = FileOperation.DELETE if path.startswith("/deleted") else FileOperation.INGEST
    priority = 9 if path.startswith("/high") else 5
    task = FileTask(path=path, watch_id="w", collection="c", operation=operation, priority=priority)
    return TaskRecord(node_id=path, task=task, queued_at=NOW)._replace(**fields)  # type: ignore[arg-type]


ALL = [
    record("/second"),
    record("/dead", dead_at=NOW),
    record("/high"),
    record("/delayed", due_at=NOW + timedelta(seconds=5), queued_at=NOW + timedelta(seconds=1)),
    record("/claimed", lease_until=NOW + timedelta(seconds=5), worker_id="me", queued_at=NOW - timedelta(1)),
    record("/deleted"),
    record("/third"),
]


@pytest.fixture
def records(tmp_path: Path) -> Iterator[TaskRecords]:
    with closing(TaskRecords(TaskTable(tmp_path / "handshake.db"))) as opened:
        yield opened


def test_queries_in_memory_equal_queries_of_the_table(records: TaskRecords, tmp_path: Path) -> None:
    records.put(ALL)
    assert records.write()
    order = ["/deleted", "/high", "/claimed", "/second", "/third", "/delayed", "/dead"]
    assert [view.task.path for view in records.list_tasks(NOW, status=None, limit=9)] == order
    with closing(TaskTable(tmp_path / "handshake.db")) as table:
        for status in (None, *TaskStatus):
            expected = table.list_tasks(NOW, status=status, limit=9)
            assert records.list_tasks(NOW, status=status, limit=9) == expected
        assert records.count_by_status(NOW) == table.count_by_status(NOW)
        assert {each.task.key: each for each in table.all()} == {each.task.key: each for each in records}


def test_counts_follow_changes(records: TaskRecords) -> None:
    records.put(ALL)
    assert (records.depth(), records.tasks_per_watch()) == (6, {"w": 6})
    records.put([record("/dead"), record("/high", dead_at=NOW)])
    assert records.depth() == 6
    records.remove([ALL[0].task.key, "unknown"])
    assert records.depth() == 5
    assert list(records.find([ALL[0].task.key, ALL[2].task.key])) == [ALL[2].task.key]
    records.replace_all([record("/only")])
    assert (records.depth(), [each.task.path for each in records]) == (1, ["/only"])


def test_removed_record_is_deleted_from_the_table(records: TaskRecords) -> None:
    records.put(ALL[:2])
    records.write()
    records.remove([ALL[0].task.key])
    records.put([record("/new")])
    records.write()
    assert {each.task.path for each in records.stored_records()} == {"/dead", "/new"}
