"""The file queue on an engine database: a consume-mode WATCH over `FileTask` nodes.

A watch hands them out, high priorities first. As soon as tasks differ in priority there is a second one over the same
nodes, low ones first; a claim is global, so a task is in one hand whichever of them gave it. Attempts, delays and dead
letters are the engine's. What is known of each task besides (`TaskRecords`) is an image for us and for others, and made
anew at the start.

A task that is put while somebody works on it: its node takes the new operation at once, and at the end of the work the
node is replaced by a fresh one, in one transaction with the ACK. Whoever dies before has lost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from pathlib import Path
from threading import RLock
from typing import Any, Self

from vedette.change import Event
from vedette.engine.database import Database
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import FolderError, StoreError, WatchError
from vedette.handshake.priority import PriorityRotation
from vedette.handshake.retry import MAX_REDELIVERIES
from vedette.search.file_queue.requests import QueueRequest, QueueRequests
from vedette.search.file_queue.task_nodes import TASK_COLUMNS, TaskNodes, merge_tasks
from vedette.search.file_queue.task_records import TaskRecords
from vedette.search.file_queue.task_table import TaskRecord, TaskTable
from vedette.search.file_queue.tasks import FILE_TASK_ONTOLOGY, ClaimedTask, FileTask, TaskStatus, TaskView
from vedette.values import timestamp_from_text

__all__ = ["QUEUE_DATABASE", "EngineFileQueue", "queue_directory"]

QUEUE_DATABASE = "file_queue"
"""Name of the database of the tasks."""
QUEUE_DIRECTORY = "queue"
"""Subfolder of a data directory for the tasks. It has its own engine, so that the server and the folder daemon are
two processes that never wait for each other."""
TASKS_PER_COMMIT = 500
"""Tasks put in one transaction; the next is prepared while this one is written."""
DEFER_MARGIN = timedelta(hours=1)
"""How much longer than its delay a deferred claim is kept, in case it is checked late."""

_WATCH = f"""WATCH t: FileTask
    [mode: consume, buffer: 10000000, ack_timeout: $lease, max_redeliveries: {MAX_REDELIVERIES},
     ordering: attribute(t.deletes DESC, t.priority %s, t.queued_at ASC)]
    RETURN {TASK_COLUMNS}"""


@dataclass(slots=True)
class _Claim:
    """A delivery held by a worker, or deferred by this queue."""

    delivery_id: str
    image: TaskRecord
    changed_while_claimed: bool = False
    """True if the task was put again while it was claimed."""
    is_deferred: bool = False
    """Deferred until `image.start_at` by extending the claim: the engine counts an attempt for every delay of its
    own."""


def queue_directory(directory: Path) -> Path:
    """Folder of the queue of a data directory."""
    return directory / QUEUE_DIRECTORY


class EngineFileQueue:
    """A `FileQueue` for any number of threads of the process that has the database open."""

    def __init__(self, database: Database, table: Path, *, lease: timedelta = timedelta(seconds=60)) -> None:
        """`table` is the file of the handshake tables."""
        database.define(FILE_TASK_ONTOLOGY)
        self._clock, self._lease = database.clock, lease
        self._lock = RLock()
        self._images = TaskRecords(TaskTable(table))
        self._requests = QueueRequests(table)
        self._requests_version = -1
        self._session = database.session()
        self._nodes = TaskNodes(self._session)
        self._claims: dict[str, _Claim] = {}
        self._by_key: dict[str, _Claim] = {}
        self._asides: list[tuple[datetime, str]] = []
        """Heap of deferred claims by release time."""
        self._turns = PriorityRotation()
        self._high_first = self._open_watch("DESC")
        self._low_first: WatchHandle | None = None
        """Opened only when priorities differ: with equal priorities both watches are identical, and a line costs
        memory per task."""
        self._priorities: set[int] = set()
        """Priorities that tasks have or had."""
        self._rebuild_table()

    def _open_watch(self, direction: str) -> WatchHandle:
        handle = self._session.watch(_WATCH % direction, lease=self._lease)
        handle.poll(1)  # the `initial` event, which is empty
        return handle

    def _ensure_low_first_watch(self, priorities: Iterable[int]) -> None:
        """Register priorities of current or future tasks."""
        self._priorities.update(priorities)
        if self._low_first is None and len(self._priorities) > 1:
            self._low_first = self._open_watch("ASC")

    def close(self) -> None:
        """Release all claims without counting an attempt. The database stays open."""
        with self._lock:
            self._session.close()
            self._images.close()
            self._requests.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- tasks

    def put(self, tasks: Sequence[FileTask]) -> None:
        try:
            for start in range(0, len(tasks), TASKS_PER_COMMIT):
                with self._caught_up():
                    self._put(tasks[start : start + TASKS_PER_COMMIT])
            self._nodes.wait_until_durable()
        except StoreError:  # the transaction was rolled back
            with self._lock:
                self._rebuild_table()
            raise

    def _put(self, tasks: Sequence[FileTask]) -> None:
        wanted: dict[str, FileTask] = {}
        for task in tasks:
            key = task.key
            wanted[key] = merge_tasks(wanted[key], task) if key in wanted else task
        known = self._images.by_key(wanted)
        self._nodes.redrive(before for before in known.values() if before.dead_at is not None)
        for key in known:
            claim = self._by_key.get(key)
            if claim is not None and claim.is_deferred:
                self._release(claim)
        now = self._clock.now()
        self._ensure_low_first_watch({task.priority for task in tasks})
        with self._nodes.transaction(durable=False):
            new = self._nodes.spawn_all([task for key, task in wanted.items() if key not in known], now)
            changed = [
                (before, self._nodes.put(before, wanted[key], now, claimed=key in self._by_key))
                for key, before in known.items()
            ]
        for _, after in changed:
            claim = self._by_key.get(after.task.key)
            if claim is not None:
                claim.image, claim.changed_while_claimed = after, True
        self._images.add(new)
        self._images.update(changed)

    # ---- claims

    def claim(self, limit: int, worker_id: str) -> list[ClaimedTask]:
        with self._caught_up():
            low_first = self._low_first if self._turns.low_first() else None
            handle = low_first or self._high_first
            self._turns = self._turns.next()
            events = handle.poll(limit)
            known = self._images.by_key([(event.match or {})["t.key"] for event in events])
            lease_until = self._clock.now() + self._lease
            claimed, changes = [], []
            for event in events:
                before = known[(event.match or {})["t.key"]]
                after = before._replace(
                    attempts=int(event.attributes["attempt"]) - 1,
                    lease_until=lease_until,
                    worker_id=worker_id,
                    due_at=None,
                )
                self.add(event, after)
                changes.append((before, after))
                claimed.append(
                    ClaimedTask(
                        task=after.task, claim_id=event.delivery_id or "", failed_attempts=after.attempts
                    )
                )
            self._images.update(changes)
            return claimed

    def ack(self, claim_ids: Sequence[str]) -> list[str]:
        with self._caught_up():
            done: list[_Claim] = []
            ended = []
            for claim_id in claim_ids:
                claim = self._claims.get(claim_id)
                if claim is None or claim.is_deferred:
                    ended.append(claim_id)
                elif not claim.changed_while_claimed:
                    done.append(claim)
                else:
                    try:
                        self._requeue_changed(claim)
                    except FolderError:
                        ended.append(claim_id)
            return ended + self._ack_all(done)

    def _ack_all(self, claims: Sequence[_Claim]) -> list[str]:
        """Acknowledge together. Returns the claims that the engine has given to other workers."""
        ended: list[str] = []
        while claims:
            done = len(claims)
            try:
                self._session.ack([claim.delivery_id for claim in claims])
            except WatchError as error:
                if error.code != "E8004":
                    raise
                late = error.fields["delivery_id"]
                ended.append(late)
                done = [claim.delivery_id for claim in claims].index(late)  # those before it are acknowledged
            self._images.update([(claim.image, None) for claim in claims[:done]])
            for claim in claims[: done + 1]:
                self.remove(claim)
            claims = claims[done + 1 :]
        return ended

    def nack(
        self,
        claim_id: str,
        *,
        error: str,
        retry: bool = True,
        delay: timedelta = timedelta(0),
        counts_attempt: bool = True,
    ) -> None:
        with self._caught_up():
            claim = self._claimed(claim_id)
            if claim.changed_while_claimed:  # the file has changed: earlier failures do not count
                self._requeue_changed(claim)
            elif retry and not counts_attempt:
                self._defer(claim, error, delay)
            else:
                with self._ends_claim(claim):
                    self._session.nack(claim_id, retry=retry, delay=delay or None, cause=error)
                self._note_failure(claim, error, delay, retry=retry, attempts=int(counts_attempt))

    def _note_failure(
        self, claim: _Claim, error: str, delay: timedelta, *, retry: bool = True, attempts: int = 1
    ) -> None:
        """The engine has counted the attempt and dead-lettered the task if it was the last."""
        now, before = self._clock.now(), claim.image
        failed = before.attempts + attempts
        is_dead = not retry or failed > MAX_REDELIVERIES
        after = before.without_lease()._replace(
            attempts=failed,
            error=error,
            due_at=now + delay if delay and not is_dead else None,
            dead_at=now if is_dead else None,
        )
        claim.image = after
        self._images.update([(before, after)])

    def _requeue_changed(self, claim: _Claim) -> None:
        """End the claim; a change put meanwhile becomes a new task."""
        with self._ends_claim(claim), self._nodes.transaction():
            self._session.execute("ACK $id", id=claim.delivery_id)
            after = self._nodes.spawn(claim.image.task, self._clock.now())
        self._images.update([(claim.image, after)])

    def _defer(self, claim: _Claim, error: str, delay: timedelta) -> None:
        before = claim.image
        due_at = self._clock.now() + delay if delay else None
        after = before.without_lease()._replace(error=error, due_at=due_at)
        if due_at is None:
            self._release(claim)
        else:
            with self._ends_claim(claim):
                self._session.extend(claim.delivery_id, delay + DEFER_MARGIN)
            claim.image, claim.is_deferred = after, True
            self._claims[claim.delivery_id] = self._by_key[after.task.key] = claim
            heappush(self._asides, (due_at, claim.delivery_id))
        self._images.update([(before, after)])

    def add(self, event: Event, image: TaskRecord) -> None:
        assert event.delivery_id is not None
        claim = _Claim(event.delivery_id, image)
        self._claims[claim.delivery_id] = self._by_key[image.task.key] = claim

    def remove(self, claim: _Claim) -> None:
        self._claims.pop(claim.delivery_id, None)
        if self._by_key.get(claim.image.task.key) is claim:
            del self._by_key[claim.image.task.key]

    def _release(self, claim: _Claim) -> None:
        """Release the claim without counting an attempt."""
        try:
            with self._ends_claim(claim):
                self._session.release(claim.delivery_id)
        except FolderError:
            pass  # the lease had expired: it is free already

    def _claimed(self, claim_id: str) -> _Claim:
        claim = self._claims.get(claim_id)
        if claim is None or claim.is_deferred:
            raise _claim_expired_error(claim_id)
        return claim

    @contextmanager
    def _ends_claim(self, claim: _Claim) -> Iterator[None]:
        """The engine decides whether the delivery is still ours; afterwards it is not."""
        try:
            yield
        except WatchError as error:
            if error.code != "E8004":
                raise
            self.remove(claim)
            raise _claim_expired_error(claim.delivery_id) from error
        self.remove(claim)

    # ---- looking

    def depth(self) -> int:
        with self._caught_up():
            return self._images.depth()

    def tasks_per_watch(self) -> Mapping[str, int]:
        with self._caught_up():
            return self._images.held()

    def flush_view(self) -> None:
        with self._caught_up():
            self._images.write()

    def list_tasks(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        with self._caught_up():
            return self._images.rows(self._clock.now(), status=status, limit=limit)

    def count_by_status(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        with self._caught_up():
            return self._images.counts(self._clock.now())

    # ---- dead letters

    def retry_dead_letters(self, path: str | None = None) -> int:
        with self._caught_up():
            return self._retry(path)

    def _retry(self, path: str | None) -> int:
        dead = self._images.dead(path)
        if path is not None and not dead:
            raise FolderError("E4505", f"no dead letter has the path {path}", fields={"path": path})
        self._redrive(dead)
        return len(dead)

    def _redrive(self, dead: Sequence[TaskRecord]) -> None:
        self._nodes.redrive(dead)
        self._images.update([(before, before._replace(attempts=0, dead_at=None)) for before in dead])

    def discard_watch(self, watch_id: str) -> int:
        with self._caught_up():
            images = self._images.of_watch(watch_id)
            self._delete(images)
            return len(images)

    def purge_dead_letters(self, before: datetime) -> int:
        with self._caught_up():
            return self._purge(before)

    def _purge(self, before: datetime) -> int:
        old = [image for image in self._images.dead() if image.dead_at is not None and image.dead_at < before]
        self._delete(old)
        return len(old)

    def _delete(self, images: Sequence[TaskRecord]) -> None:
        """Dead letters can only be redriven, not deleted; after a crash in between, the task is tried once more."""
        self._nodes.redrive(image for image in images if image.dead_at is not None)
        with self._nodes.transaction():
            for image in images:
                self._nodes.delete(image.task.key)
        for image in images:
            claim = self._by_key.get(image.task.key)
            if claim is not None:
                self.remove(claim)
        self._images.update([(image, None) for image in images])

    # ---- what happened meanwhile

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Take the lock, and process expired leases and requests first."""
        with self._lock:
            self._record_expired_leases()
            self._release_due()
            self._answer_requests()
            yield

    def _record_expired_leases(self) -> None:
        """Record expired leases; the engine has counted the attempts."""
        for handle in filter(None, (self._high_first, self._low_first)):
            for record in handle.errors():
                claim = self._claims.get(record.fields["delivery_id"]) if record.code == "E8003" else None
                if claim is None:
                    continue
                self.remove(claim)
                self._note_failure(claim, "its worker was lost", timedelta(0))
                if claim.changed_while_claimed and claim.image.dead_at is not None:
                    self._redrive([claim.image])  # a change put meanwhile has not failed

    def _release_due(self) -> None:
        now = self._clock.now()
        while self._asides and self._asides[0][0] <= now:
            _, delivery_id = heappop(self._asides)
            claim = self._claims.get(delivery_id)
            if claim is not None:
                self._release(claim)

    def _answer_requests(self) -> None:
        version = self._requests.foreign_version()
        if version == self._requests_version:
            return
        self._requests_version = version
        for request in self._requests.asked():
            try:
                answer: dict[str, Any] = {"count": self._answered(request)}
            except FolderError as error:
                answer = {"error": error.text}
            self._images.write()  # the requester reads the table next
            self._requests.answer(request.id, json.dumps(answer))

    def _answered(self, request: QueueRequest) -> int:
        if request.verb == "retry":
            return self._retry(request.argument)
        assert request.argument is not None, "a purge has a moment"
        return self._purge(timestamp_from_text(request.argument))

    # ---- the image

    def _rebuild_table(self) -> None:
        """Rebuild the table. Errors and delays, which only the table has, are kept for unchanged nodes."""
        known = {image.element: image.without_lease() for image in self._images.all()}
        known.update((claim.image.element, claim.image) for claim in self._claims.values())
        images = [_merge_known(image, known) for image in self._nodes.load_records()]
        self._ensure_low_first_watch({image.task.priority for image in images})
        self._images.replace_all(sorted(images, key=lambda image: image.queued_at))


def _merge_known(image: TaskRecord, known: Mapping[str, TaskRecord]) -> TaskRecord:
    before = known.get(image.element)
    if before is None or image.dead_at is not None or before.dead_at is not None:
        return image
    return before._replace(task=image.task)


def _claim_expired_error(claim_id: str) -> FolderError:
    return FolderError("E4505", f"the claim {claim_id} has ended", fields={"claim": claim_id})
