"""The contract of the file queue, for the queue on an engine and for its in-memory twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

import vedette
from vedette.errors import FolderError
from vedette.handshake.tables.handshake_db import FILE_NAME
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue
from vedette.search.file_queue.tasks import FILE_TASK_ONTOLOGY, FileOperation, FileQueue, FileTask, TaskStatus
from vedette.testing import ManualClock
from vedette.testing.file_queue import MemoryFileQueue


def on_engine(location: str) -> Callable[[ManualClock, Path], AbstractContextManager[FileQueue]]:
    @contextmanager
    def open_queue(clock: ManualClock, directory: Path) -> Iterator[FileQueue]:
        with (
            vedette.open(
                location if location == ":memory:" else directory / location, clock=clock
            ) as queue_vedette,
            EngineFileQueue(queue_vedette.database(QUEUE_DATABASE), directory / FILE_NAME) as queue,
        ):
            yield queue

    return open_queue


QUEUES: dict[str, Callable[[ManualClock, Path], AbstractContextManager[FileQueue]]] = {
    "twin": lambda clock, _: nullcontext(MemoryFileQueue(clock)),
    "engine in memory": on_engine(":memory:"),
    "engine on a directory": on_engine("data"),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=list(QUEUES))
def queue(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[FileQueue]:
    with QUEUES[request.param](clock, tmp_path) as opened:
        yield opened


def task(
    path: str, operation: str = "ingest", priority: int = 5, watch: str = "w", collection: str = "c"
) -> FileTask:
    return FileTask(
        path=path,
        watch_id=watch,
        collection=collection,
        operation=FileOperation(operation),
        priority=priority,
    )


def claimed(queue: FileQueue, limit: int = 10) -> list[str]:
    return [each.task.path for each in queue.claim(limit, "me")]


def test_ontology_is_valid() -> None:
    with vedette.open(":memory:") as db:
        db.define(FILE_TASK_ONTOLOGY)
        with db.session() as session:
            session.execute(
                'SPAWN t: FileTask { key = "k", path = "/a", watch_id = "w", collection = "c", operation = "ingest",'
                " queued_at = now() }"
            )
            with pytest.raises(vedette.ConstraintViolation):
                session.execute('MATCH t: FileTask SET t.operation = "unknown"')


def test_claims_deletions_first_then_by_priority_and_age(queue: FileQueue, clock: ManualClock) -> None:
    for path, operation, priority in [
        ("/low", "ingest", 1),
        ("/first", "ingest", 5),
        ("/second", "update", 5),
        ("/high", "ingest", 9),
        ("/gone", "delete", 0),
    ]:
        queue.put([task(path, operation, priority)])
        clock.advance(1)
    assert claimed(queue) == ["/gone", "/high", "/first", "/second", "/low"]
    assert claimed(queue) == [], "a task has one claim"


def test_low_priorities_get_their_share(queue: FileQueue) -> None:
    queue.put([task(f"/high/{number}", priority=9) for number in range(100)])
    queue.put([task(f"/low/{number}", priority=1) for number in range(100)])
    first = [claimed(queue, 1)[0].split("/")[1] for _ in range(26)]
    assert first.count("low") == 6


def test_one_task_per_path(queue: FileQueue, clock: ManualClock) -> None:
    queue.put([task("/a", "ingest", 8)])
    clock.advance(5)
    queue.put([task("/a", "delete", 3), task("/a", collection="other")])
    assert queue.depth() == 2
    (row, _) = queue.list_tasks()
    assert (row.task.operation, row.task.priority) == (FileOperation.DELETE, 8)
    assert row.queued_at == clock.now() - timedelta(seconds=5)


def test_change_put_while_claimed_is_not_lost(queue: FileQueue) -> None:
    queue.put([task("/a", "ingest")])
    (claim,) = queue.claim(1, "me")
    queue.put([task("/a", "update")])
    queue.put([task("/a", "delete")])
    assert queue.claim(1, "you") == [], "two workers must not process one file"
    queue.ack([claim.claim_id])
    (second,) = queue.claim(1, "you")
    assert second.task.operation is FileOperation.DELETE
    queue.ack([second.claim_id])
    assert queue.depth() == 0


def test_failed_task_is_delayed_and_dead_after_the_fifth_attempt(
    queue: FileQueue, clock: ManualClock
) -> None:
    queue.put([task("/a")])
    for attempt in range(5):
        (claim,) = queue.claim(1, "me")
        assert claim.failed_attempts == attempt
        queue.nack(claim.claim_id, error=f"broken {attempt}", delay=timedelta(seconds=8))
        if attempt < 4:
            assert queue.list_tasks()[0].status is TaskStatus.DELAYED
            assert queue.claim(1, "me") == []
            clock.advance(8)
    (row,) = queue.list_tasks(status=TaskStatus.DEAD)
    assert (row.error, row.attempts, queue.depth()) == ("broken 4", 5, 0)
    assert queue.claim(1, "me") == []
    assert queue.retry_dead_letters("/a") == 1
    assert queue.claim(1, "me")[0].failed_attempts == 0


def test_nack_without_counting_an_attempt(queue: FileQueue) -> None:
    queue.put([task("/a")])
    for _ in range(20):
        (claim,) = queue.claim(1, "me")
        queue.nack(claim.claim_id, error="the sink is down", counts_attempt=False)
    assert queue.list_tasks()[0].attempts == 0


def test_permanent_failure_is_dead_until_the_file_changes(queue: FileQueue) -> None:
    queue.put([task("/a")])
    queue.nack(queue.claim(1, "me")[0].claim_id, error="damaged", retry=False)
    assert queue.list_tasks()[0].status is TaskStatus.DEAD
    queue.put([task("/a", "update")])
    assert queue.claim(1, "me")[0].failed_attempts == 0


def test_task_of_a_lost_worker_is_delivered_again(queue: FileQueue, clock: ManualClock) -> None:
    queue.put([task("/a")])
    (lost,) = queue.claim(1, "me")
    (row,) = queue.list_tasks()
    assert (row.status, row.worker_id) == (TaskStatus.IN_PROGRESS, "me")
    assert row.lease_until is not None
    clock.advance((row.lease_until - clock.now()).total_seconds())
    (claim,) = queue.claim(1, "you")
    assert claim.failed_attempts == 1
    assert queue.ack([lost.claim_id, claim.claim_id, "unknown"]) == [lost.claim_id, "unknown"]
    assert queue.depth() == 0


def test_counts_discard_and_purge(queue: FileQueue, clock: ManualClock) -> None:
    queue.put([task("/a"), task("/b", watch="other"), task("/c", collection="d")])
    queue.nack(queue.claim(1, "me")[0].claim_id, error="x", retry=False)
    assert queue.count_by_status() == {
        "c": {TaskStatus.DEAD: 1, TaskStatus.PENDING: 1},
        "d": {TaskStatus.PENDING: 1},
    }
    assert queue.tasks_per_watch() == {"other": 1, "w": 1}
    assert queue.discard_watch("other") == 1
    assert queue.purge_dead_letters(clock.now()) == 0
    clock.advance(1)
    assert queue.purge_dead_letters(clock.now()) == 1
    assert [row.task.path for row in queue.list_tasks()] == ["/c"]
    assert queue.retry_dead_letters() == 0
    with pytest.raises(FolderError, match="E4505"):
        queue.retry_dead_letters("/nothing")
