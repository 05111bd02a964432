"""The file queue on an engine beyond its contract: restarts, the SQL view, and a table that cannot be written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

import vedette
from vedette.clock import SystemClock
from vedette.errors import StoreError
from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.tables import HandshakeTables
from vedette.search.file_queue import task_records
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue
from vedette.search.file_queue.task_table import TaskRecord, TaskTable
from vedette.search.file_queue.tasks import FileOperation, FileQueue, FileTask, TaskStatus
from vedette.search.folders.intake import FolderIntake
from vedette.sources.files.file_stamp import ChangeKind, FileChange, FileStamp
from vedette.testing import ManualClock
from vedette.testing.file_queue import MemoryFileQueue

VIEW = "SELECT path, status, priority, worker_id, lease_until > queued_at, age >= 0 FROM ingestion_queue"


def task(path: str, operation: str = "ingest", priority: int = 5) -> FileTask:
    return FileTask(
        path=path, watch_id="w", collection="c", operation=FileOperation(operation), priority=priority
    )


@contextmanager
def open_queue(directory: Path, clock: ManualClock | SystemClock) -> Iterator[EngineFileQueue]:
    with (
        vedette.open(directory, clock=clock) as queue_vedette,
        EngineFileQueue(queue_vedette.database(QUEUE_DATABASE), directory / "handshake.db") as queue,
    ):
        yield queue


@pytest.mark.parametrize("table", ["kept", "lost"])
def test_tasks_survive_a_restart(tmp_path: Path, table: str) -> None:
    clock = ManualClock()
    with open_queue(tmp_path, clock) as queue:
        queue.put([task("/dead"), task("/late"), task("/held"), task("/waits")])
        dead, late, _ = queue.claim(3, "me")
        queue.nack(dead.claim_id, error="damaged", retry=False)
        queue.nack(late.claim_id, error="busy", delay=timedelta(seconds=8))
    if table == "lost":
        with sqlite3.connect(tmp_path / "handshake.db") as db:
            db.execute("DELETE FROM file_tasks")
    with open_queue(tmp_path, clock) as queue:
        (row,) = queue.list_tasks(status=TaskStatus.DEAD)
        assert (row.task.path, row.error, row.attempts) == ("/dead", "damaged", 1)
        assert queue.tasks_per_watch() == {"w": 3}
        assert [each.task.path for each in queue.claim(9, "me")] == ["/held", "/waits"], (
            "only /late is delayed"
        )
        clock.advance(8)
        assert [(each.task.path, each.failed_attempts) for each in queue.claim(9, "me")] == [("/late", 1)]
        assert queue.retry_dead_letters() == 1
        assert [(each.task.path, each.failed_attempts) for each in queue.claim(9, "me")] == [("/dead", 0)]


def test_view_can_be_read_by_plain_sqlite(tmp_path: Path) -> None:
    with open_queue(tmp_path, SystemClock()) as queue:
        queue.put(
            [task("/low", priority=1), task("/high", priority=9), task("/gone", "delete", 0), task("/x")]
        )
        (claim,) = queue.claim(1, "me")
        queue.nack(claim.claim_id, error="busy", delay=timedelta(hours=1))
        queue.claim(1, "worker-7")
        expected = [
            ("/gone", "delayed", 0, None, None, 1),
            ("/high", "in_progress", 9, "worker-7", 1, 1),
            ("/x", "pending", 5, None, None, 1),
            ("/low", "pending", 1, None, None, 1),
        ]
        end, rows = monotonic() + 60, list[tuple[object, ...]]()
        with sqlite3.connect(f"file:{tmp_path}/handshake.db?mode=ro", uri=True) as db:
            while rows != expected and monotonic() < end:  # a background thread writes the view
                rows = db.execute(VIEW).fetchall()
            assert rows == expected
            queue.put([task("/late", priority=0)])
            queue.flush_view()
            assert db.execute(VIEW).fetchall()[-1] == ("/late", "pending", 0, None, None, 1)


def test_put_succeeds_while_the_table_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks are durable; the table is written as soon as that works again."""
    with open_queue(tmp_path, ManualClock()) as queue:

        def fail(table: TaskTable, records: Iterable[TaskRecord], removed_keys: Iterable[str] = ()) -> None:
            raise StoreError("E6001", "the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(TaskTable, "write", fail)
            queue.put([task("/a")])
        assert [row.task.path for row in queue.list_tasks()] == ["/a"]
        (claim,) = queue.claim(1, "me")
        with monkeypatch.context() as broken:
            broken.setattr(TaskTable, "write", fail)
            queue.put([task("/a", "delete")])
        (row,) = queue.list_tasks()
        assert (row.status, row.task.operation) == (TaskStatus.IN_PROGRESS, FileOperation.DELETE)
        queue.ack([claim.claim_id])
        assert queue.claim(1, "me")[0].task.operation is FileOperation.DELETE


def test_many_tasks_are_put_in_several_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks exceed one commit and `MAX_DIRTY_TASKS`, and some paths occur twice."""
    monkeypatch.setattr(task_records, "MAX_DIRTY_TASKS", 700)
    paths = [f"/{number:05}" for number in range(1_300)]
    with open_queue(tmp_path, SystemClock()) as queue:
        queue.put([task(path) for path in paths] + [task(path, "delete") for path in paths[:3]])
        assert queue.depth() == len(paths)
    with open_queue(tmp_path, SystemClock()) as queue:
        assert queue.depth() == len(paths)
        assert [row.task.path for row in queue.list_tasks(limit=20_000)] == paths
        claims = queue.claim(600, "me")
        assert {claim.task.operation for claim in claims[:3]} == {FileOperation.DELETE}
        assert queue.ack([claim.claim_id for claim in claims]) == []
        assert queue.tasks_per_watch() == {"w": len(paths) - 600}
        assert [row.task.path for row in queue.list_tasks(limit=1)] == paths[600:601]


@pytest.mark.parametrize("restarted", [False, True])
def test_low_first_watch_opens_when_priorities_differ(tmp_path: Path, restarted: bool) -> None:
    """The watch opens over pending, claimed and delayed tasks. Claims equal those of the in-memory twin."""
    clock, twin = ManualClock(), MemoryFileQueue(ManualClock())
    with ExitStack() as stack:
        queue: FileQueue = stack.enter_context(open_queue(tmp_path, clock))
        for each in (queue, twin):
            each.put([task(f"/{number}") for number in range(40)])
        for each in (queue, twin):
            first, second = each.claim(2, "me")
            each.nack(first.claim_id, error="busy", delay=timedelta(hours=1))
            each.put([task("/low", priority=1), task("/high", priority=9)])
            each.ack([second.claim_id])
        if restarted:
            stack.close()
            queue = stack.enter_context(open_queue(tmp_path, clock))
        claimed = [[each.claim(1, "me")[0].task.path for _ in range(40)] for each in (queue, twin)]
        assert sorted(claimed[0]) == sorted(claimed[1])
        if not restarted:  # the rotation restarts with the process
            assert claimed[0] == claimed[1]
        assert claimed[0].index("/low") < 39, "a low-first claim delivered it"


def test_finished_scan_has_its_tasks_in_the_view(tmp_path: Path) -> None:
    """`wqm watch sync` waits for the scan, and then until the view shows no task."""
    change = FileChange(kind=ChangeKind.CREATED, path="a", stamp=FileStamp(1, 1, 1, 1, 1))
    with open_queue(tmp_path, SystemClock()) as queue, HandshakeTables(tmp_path / "handshake.db") as tables:
        tables.add_watch(WatchFolderConfig(watch_id="w", path="/root", collection="c"))
        intake = FolderIntake("w", tables, queue, SystemClock())
        assert intake.accept([change]) == [change]
        intake.scan_finished(SystemClock().now())
        with sqlite3.connect(f"file:{tmp_path}/handshake.db?mode=ro", uri=True) as db:
            assert db.execute("SELECT path FROM ingestion_queue").fetchall() == [("/root/a",)]
