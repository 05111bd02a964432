"""The queue on an engine beyond its contract: restarts, its image in SQL, and a table that cannot be written."""

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
from vedette.search.file_queue import task_records as queue_images
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
def opened(place: Path, clock: ManualClock | SystemClock) -> Iterator[EngineFileQueue]:
    with (
        vedette.open(place, clock=clock) as home,
        EngineFileQueue(home.database(QUEUE_DATABASE), place / "handshake.db") as queue,
    ):
        yield queue


@pytest.mark.parametrize("image", ["kept", "lost"])
def test_a_restart(tmp_path: Path, image: str) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock) as queue:
        queue.put([task("/dead"), task("/late"), task("/held"), task("/waits")])
        dead, late, _ = queue.claim(3, "me")
        queue.nack(dead.claim_id, error="damaged", retry=False)
        queue.nack(late.claim_id, error="busy", delay=timedelta(seconds=8))
    if image == "lost":
        with sqlite3.connect(tmp_path / "handshake.db") as plain:
            plain.execute("DELETE FROM file_tasks")
    with opened(tmp_path, clock) as queue:
        (row,) = queue.list_tasks(status=TaskStatus.DEAD)
        assert (row.task.path, row.error, row.attempts) == ("/dead", "damaged", 1)
        assert queue.tasks_per_watch() == {"w": 3}
        assert [each.task.path for each in queue.claim(9, "me")] == ["/held", "/waits"], (
            "none is delayed but /late"
        )
        clock.advance(8)
        assert [(each.task.path, each.failed_attempts) for each in queue.claim(9, "me")] == [("/late", 1)]
        assert queue.retry_dead_letters() == 1
        assert [(each.task.path, each.failed_attempts) for each in queue.claim(9, "me")] == [("/dead", 0)]


def test_any_sqlite_tool_reads_the_view(tmp_path: Path) -> None:
    with opened(tmp_path, SystemClock()) as queue:
        queue.put(
            [task("/low", priority=1), task("/high", priority=9), task("/gone", "delete", 0), task("/x")]
        )
        (claim,) = queue.claim(1, "me")
        queue.nack(claim.claim_id, error="busy", delay=timedelta(hours=1))
        queue.claim(1, "worker-7")
        wanted = [
            ("/gone", "delayed", 0, None, None, 1),
            ("/high", "in_progress", 9, "worker-7", 1, 1),
            ("/x", "pending", 5, None, None, 1),
            ("/low", "pending", 1, None, None, 1),
        ]
        end, shown = monotonic() + 60, list[tuple[object, ...]]()
        with sqlite3.connect(f"file:{tmp_path}/handshake.db?mode=ro", uri=True) as plain:
            while shown != wanted and monotonic() < end:  # the view follows a moment later
                shown = plain.execute(VIEW).fetchall()
            assert shown == wanted
            queue.put([task("/late", priority=0)])
            queue.flush_view()
            assert plain.execute(VIEW).fetchall()[-1] == ("/late", "pending", 0, None, None, 1)


def test_a_table_that_cannot_be_written_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is put is put; the table is written as soon as that works."""
    with opened(tmp_path, ManualClock()) as queue:

        def full(table: TaskTable, images: Iterable[TaskRecord], gone: Iterable[str] = ()) -> None:
            raise StoreError("E6001", "the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(TaskTable, "write", full)
            queue.put([task("/a")])
        assert [row.task.path for row in queue.list_tasks()] == ["/a"]
        (claim,) = queue.claim(1, "me")
        with monkeypatch.context() as broken:
            broken.setattr(TaskTable, "write", full)
            queue.put([task("/a", "delete")])
        (row,) = queue.list_tasks()
        assert (row.status, row.task.operation) == (TaskStatus.IN_PROGRESS, FileOperation.DELETE)
        queue.ack([claim.claim_id])
        assert queue.claim(1, "me")[0].task.operation is FileOperation.DELETE


def test_a_crowd_is_put_in_several_commits_and_all_of_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one commit, more than may be unwritten in the table, and some paths twice."""
    monkeypatch.setattr(queue_images, "MAX_DIRTY_TASKS", 700)
    paths = [f"/{number:05}" for number in range(1_300)]
    with opened(tmp_path, SystemClock()) as queue:
        queue.put([task(path) for path in paths] + [task(path, "delete") for path in paths[:3]])
        assert queue.depth() == len(paths)
    with opened(tmp_path, SystemClock()) as queue:
        assert queue.depth() == len(paths)
        assert [row.task.path for row in queue.list_tasks(limit=20_000)] == paths
        claims = queue.claim(600, "me")
        assert {claim.task.operation for claim in claims[:3]} == {FileOperation.DELETE}
        assert queue.ack([claim.claim_id for claim in claims]) == []
        assert queue.tasks_per_watch() == {"w": len(paths) - 600}
        assert [row.task.path for row in queue.list_tasks(limit=1)] == paths[600:601]


@pytest.mark.parametrize("restarted", [False, True])
def test_low_priorities_have_a_line_of_their_own_once_there_are_two(tmp_path: Path, restarted: bool) -> None:
    """It is opened over tasks that wait, are in progress or delayed, and hands out what its twin does."""
    clock, twin = ManualClock(), MemoryFileQueue(ManualClock())
    with ExitStack() as stack:
        queue: FileQueue = stack.enter_context(opened(tmp_path, clock))
        for each in (queue, twin):
            each.put([task(f"/{number}") for number in range(40)])
        for each in (queue, twin):
            first, second = each.claim(2, "me")
            each.nack(first.claim_id, error="busy", delay=timedelta(hours=1))
            each.put([task("/low", priority=1), task("/high", priority=9)])
            each.ack([second.claim_id])
        if restarted:
            stack.close()
            queue = stack.enter_context(opened(tmp_path, clock))
        claimed = [[each.claim(1, "me")[0].task.path for _ in range(40)] for each in (queue, twin)]
        assert sorted(claimed[0]) == sorted(claimed[1])
        if not restarted:  # whose turn it is begins anew
            assert claimed[0] == claimed[1]
        assert claimed[0].index("/low") < 39, "it had its turn"


def test_a_scan_is_over_when_its_tasks_can_be_seen(tmp_path: Path) -> None:
    """`wqm watch sync` waits for the scan, and then until no task is left."""
    change = FileChange(kind=ChangeKind.CREATED, path="a", stamp=FileStamp(1, 1, 1, 1, 1))
    with opened(tmp_path, SystemClock()) as queue, HandshakeTables(tmp_path / "handshake.db") as tables:
        tables.add_watch(WatchFolderConfig(watch_id="w", path="/root", collection="c"))
        feed = FolderIntake("w", tables, queue, SystemClock())
        assert feed.accept([change]) == [change]
        feed.scanned(SystemClock().now())
        with sqlite3.connect(f"file:{tmp_path}/handshake.db?mode=ro", uri=True) as plain:
            assert plain.execute("SELECT path FROM ingestion_queue").fetchall() == [("/root/a",)]
