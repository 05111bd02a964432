"""The file queue on an engine database: a consume-mode WATCH over `FileTask` nodes.

Theory of operation. The nodes are the queue. A watch delivers them, high priorities first; attempts, leases and dead
letters belong to the engine. As soon as two tasks have different priorities, a second watch delivers the same nodes,
low priorities first. Claims are global, so a task is claimed once, whichever watch delivered it.

If a file changes while its task is claimed, the node is updated immediately. When the claim ends, one transaction
acknowledges the delivery and creates a new task. After a crash before that, the updated node is still queued.

A delay that must not count as an attempt (`nack(counts_attempt=False)`) keeps the claim and extends it, because the
engine counts an attempt for every delay of its own. `ClaimRegistry` knows these deferred claims; `_catch_up` releases
them when their delay has passed.

`TaskRecords` has the status, error and delay of each task, which the engine does not report, for `list_tasks` and for
the SQL view `ingestion_queue`. The records are derived data and are rebuilt at start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from threading import RLock
from typing import Self

from vedette.engine.database import Database
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import FolderError, StoreError, WatchError
from vedette.handshake.priority import PriorityRotation
from vedette.handshake.retry import MAX_REDELIVERIES
from vedette.search.file_queue.claims import Claim, ClaimRegistry
from vedette.search.file_queue.task_nodes import TASK_COLUMNS, TaskNodes, merge_tasks
from vedette.search.file_queue.task_records import TaskRecords
from vedette.search.file_queue.task_table import TaskRecord, TaskTable
from vedette.search.file_queue.tasks import FILE_TASK_ONTOLOGY, ClaimedTask, FileTask, TaskStatus, TaskView

__all__ = ["QUEUE_DATABASE", "EngineFileQueue", "queue_directory"]

QUEUE_DATABASE = "file_queue"
"""Name of the database that has the tasks."""
QUEUE_DIRECTORY = "queue"
"""Subfolder of a data directory for the queue. It has an engine of its own, so that the server and the folder daemon
are two processes that never wait for each other."""
TASKS_PER_COMMIT = 500
"""Tasks put in one transaction. The next transaction is prepared while this one is written to disk."""
DEFER_MARGIN = timedelta(hours=1)
"""A deferred claim is extended by this time beyond its delay, so that a late check still finds it."""
CLAIM_EXPIRED_CODE = "E8004"
"""The engine's error code for a delivery that has expired or was given to another consumer."""

_WATCH = f"""WATCH t: FileTask
    [mode: consume, buffer: 10000000, ack_timeout: $lease, max_redeliveries: {MAX_REDELIVERIES},
     ordering: attribute(t.deletes DESC, t.priority %s, t.queued_at ASC)]
    RETURN {TASK_COLUMNS}"""


def queue_directory(directory: Path) -> Path:
    """Return the folder of the queue of a data directory."""
    return directory / QUEUE_DIRECTORY


class EngineFileQueue:
    """A `FileQueue` for any number of threads of the process that has the database open."""

    def __init__(self, database: Database, table: Path, *, lease: timedelta = timedelta(seconds=60)) -> None:
        """`table` is the path of `handshake.db`. `lease` is how long a worker may hold a claim."""
        database.define(FILE_TASK_ONTOLOGY)
        self._clock, self._lease = database.clock, lease
        self._lock = RLock()
        self._records = TaskRecords(TaskTable(table))
        self._session = database.session()
        self._nodes = TaskNodes(self._session)
        self._claims = ClaimRegistry()
        self._rotation = PriorityRotation()
        self._high_first = self._open_watch("DESC")
        self._low_first: WatchHandle | None = None
        """Opened when priorities differ. With equal priorities both watches have the same order, and a watch costs
        memory for every task."""
        self._priorities: set[int] = set()
        """Every priority that a task has had since the start."""
        self._rebuild_records(self._records.stored_records())

    def close(self) -> None:
        """Release all claims without counting an attempt. The database stays open."""
        with self._lock:
            self._session.close()
            self._records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Put

    def put(self, tasks: Sequence[FileTask]) -> None:
        try:
            for start in range(0, len(tasks), TASKS_PER_COMMIT):
                with self._caught_up():
                    self._put(tasks[start : start + TASKS_PER_COMMIT])
            self._nodes.wait_until_durable()
        except StoreError:  # the engine rolled the transactions back: read the nodes again
            with self._lock:
                self._rebuild_records(list(self._records))
            raise

    def _put(self, tasks: Sequence[FileTask]) -> None:
        merged: dict[str, FileTask] = {}
        for task in tasks:
            key = task.key
            merged[key] = merge_tasks(merged[key], task) if key in merged else task
        known = self._records.find(merged)
        self._nodes.redrive(record for record in known.values() if record.dead_at is not None)
        for key in known:
            claim = self._claims.by_key(key)
            if claim is not None and claim.is_deferred:
                self._release(claim)
        now = self._clock.now()
        self._ensure_low_first_watch(task.priority for task in tasks)
        with self._nodes.transaction(durable=False):
            added = self._nodes.spawn_all([task for key, task in merged.items() if key not in known], now)
            changed = [
                self._nodes.put(record, merged[key], now, claimed=self._claims.by_key(key) is not None)
                for key, record in known.items()
            ]
        for key in known:
            claim = self._claims.by_key(key)
            if claim is not None:
                claim.changed_while_claimed = True
        self._records.put([*added, *changed])

    def _open_watch(self, direction: str) -> WatchHandle:
        handle = self._session.watch(_WATCH % direction, lease=self._lease)
        handle.poll(1)  # the `initial` event, which is empty
        return handle

    def _ensure_low_first_watch(self, priorities: Iterable[int]) -> None:
        """Open the low-first watch if these priorities differ from each other or from earlier ones."""
        self._priorities.update(priorities)
        if self._low_first is None and len(self._priorities) > 1:
            self._low_first = self._open_watch("ASC")

    # Claims

    def claim(self, limit: int, worker_id: str) -> list[ClaimedTask]:
        with self._caught_up():
            low_first = self._low_first if self._rotation.low_first() else None
            handle = low_first or self._high_first
            self._rotation = self._rotation.next()
            lease_until = self._clock.now() + self._lease
            claimed, records = [], []
            for event in handle.poll(limit):
                assert event.match is not None
                assert event.delivery_id is not None
                record = self._records[event.match["t.key"]]._replace(
                    attempts=int(event.attributes["attempt"]) - 1,
                    lease_until=lease_until,
                    worker_id=worker_id,
                    due_at=None,
                )
                records.append(record)
                self._claims.add(event.delivery_id, record.task.key)
                claimed.append(
                    ClaimedTask(task=record.task, claim_id=event.delivery_id, failed_attempts=record.attempts)
                )
            self._records.put(records)
            return claimed

    def ack(self, claim_ids: Sequence[str]) -> list[str]:
        with self._caught_up():
            unchanged: list[Claim] = []
            expired = []
            for claim_id in claim_ids:
                claim = self._claims.held(claim_id)
                if claim is None:
                    expired.append(claim_id)
                elif not claim.changed_while_claimed:
                    unchanged.append(claim)
                else:
                    try:
                        self._requeue_changed(claim)
                    except FolderError:
                        expired.append(claim_id)
            return expired + self._ack_all(unchanged)

    def _ack_all(self, claims: Sequence[Claim]) -> list[str]:
        """Acknowledge the claims together. Return the ids of those that had expired."""
        expired_ids: list[str] = []
        while claims:
            acknowledged = len(claims)
            try:
                self._session.ack([claim.delivery_id for claim in claims])
            except WatchError as error:
                if error.code != CLAIM_EXPIRED_CODE:
                    raise
                expired_id = error.fields["delivery_id"]
                expired_ids.append(expired_id)
                # The engine has acknowledged the claims before the expired one.
                acknowledged = [claim.delivery_id for claim in claims].index(expired_id)
            self._records.remove(claim.key for claim in claims[:acknowledged])
            for claim in claims[: acknowledged + 1]:
                self._claims.remove(claim)
            claims = claims[acknowledged + 1 :]
        return expired_ids

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
            claim = self._claims.held(claim_id)
            if claim is None:
                raise _claim_expired_error(claim_id)
            if claim.changed_while_claimed:  # failures of the earlier content do not count
                self._requeue_changed(claim)
            elif retry and not counts_attempt:
                self._defer(claim, error, delay)
            else:
                with self._ends_claim(claim):
                    self._session.nack(claim_id, retry=retry, delay=delay or None, cause=error)
                self._record_failure(claim.key, error, delay, retry=retry, attempts=int(counts_attempt))

    def _record_failure(
        self, key: str, error: str, delay: timedelta, *, retry: bool = True, attempts: int = 1
    ) -> None:
        """Update the record after the engine has counted the attempt, and dead-lettered the task if it was the last."""
        now, record = self._clock.now(), self._records[key]
        failed_attempts = record.attempts + attempts
        is_dead = not retry or failed_attempts > MAX_REDELIVERIES
        self._records.put(
            [
                record.without_lease()._replace(
                    attempts=failed_attempts,
                    error=error,
                    due_at=now + delay if delay and not is_dead else None,
                    dead_at=now if is_dead else None,
                )
            ]
        )

    def _requeue_changed(self, claim: Claim) -> None:
        """Acknowledge the claim and queue the change that was put meanwhile as a new task, in one transaction."""
        with self._ends_claim(claim), self._nodes.transaction():
            self._session.execute("ACK $id", id=claim.delivery_id)
            record = self._nodes.spawn(self._records[claim.key].task, self._clock.now())
        self._records.put([record])

    def _defer(self, claim: Claim, error: str, delay: timedelta) -> None:
        due_at = self._clock.now() + delay if delay else None
        if due_at is None:
            self._release(claim)
        else:
            with self._ends_claim(claim):
                self._session.extend(claim.delivery_id, delay + DEFER_MARGIN)
            self._claims.defer(claim, due_at)
        record = self._records[claim.key]
        self._records.put([record.without_lease()._replace(error=error, due_at=due_at)])

    def _release(self, claim: Claim) -> None:
        """Release the claim without counting an attempt."""
        try:
            with self._ends_claim(claim):
                self._session.release(claim.delivery_id)
        except FolderError:
            pass  # the claim had expired, so the task is free already

    @contextmanager
    def _ends_claim(self, claim: Claim) -> Iterator[None]:
        """Remove the claim after the block. Raises E4505 if the engine reports in the block that the claim expired."""
        try:
            yield
        except WatchError as error:
            if error.code != CLAIM_EXPIRED_CODE:
                raise
            self._claims.remove(claim)
            raise _claim_expired_error(claim.delivery_id) from error
        self._claims.remove(claim)

    # Queries

    def depth(self) -> int:
        with self._caught_up():
            return self._records.depth()

    def tasks_per_watch(self) -> Mapping[str, int]:
        with self._caught_up():
            return self._records.tasks_per_watch()

    def flush_view(self) -> None:
        with self._caught_up():
            self._records.write()

    def list_tasks(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        with self._caught_up():
            return self._records.list_tasks(self._clock.now(), status=status, limit=limit)

    def count_by_status(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        with self._caught_up():
            return self._records.count_by_status(self._clock.now())

    # Dead letters and deletion

    def retry_dead_letters(self, path: str | None = None) -> int:
        with self._caught_up():
            dead = [
                record
                for record in self._records
                if record.dead_at is not None and path in (None, record.task.path)
            ]
            if path is not None and not dead:
                raise FolderError("E4505", f"no dead letter has the path {path}", fields={"path": path})
            self._redrive(dead)
            return len(dead)

    def purge_dead_letters(self, before: datetime) -> int:
        with self._caught_up():
            return self._delete(
                [record for record in self._records if record.dead_at is not None and record.dead_at < before]
            )

    def discard_watch(self, watch_id: str) -> int:
        with self._caught_up():
            return self._delete([record for record in self._records if record.task.watch_id == watch_id])

    def _redrive(self, dead: Sequence[TaskRecord]) -> None:
        self._nodes.redrive(dead)
        self._records.put([record._replace(attempts=0, dead_at=None) for record in dead])

    def _delete(self, records: Sequence[TaskRecord]) -> int:
        """Delete tasks and dead letters. Return their number.

        The engine cannot delete a dead letter, so it is redriven first. After a crash in between, the task is tried
        once more.
        """
        self._nodes.redrive(record for record in records if record.dead_at is not None)
        with self._nodes.transaction():
            for record in records:
                self._nodes.delete(record.task.key)
        for record in records:
            claim = self._claims.by_key(record.task.key)
            if claim is not None:
                self._claims.remove(claim)
        self._records.remove(record.task.key for record in records)
        return len(records)

    # Catching up with the engine

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold the lock. Before the block, record expired leases and release deferred claims that are due."""
        with self._lock:
            self._record_expired_leases()
            for claim in self._claims.take_due(self._clock.now()):
                self._release(claim)
            yield

    def _record_expired_leases(self) -> None:
        """Update the records of expired claims. The engine has counted the attempts."""
        for handle in filter(None, (self._high_first, self._low_first)):
            for report in handle.errors():
                claim = (
                    self._claims.by_delivery(report.fields["delivery_id"]) if report.code == "E8003" else None
                )
                if claim is None:
                    continue
                is_latest = self._claims.by_key(claim.key) is claim
                self._claims.remove(claim)
                if not is_latest:
                    continue  # the task was delivered again before this report arrived
                self._record_failure(claim.key, "its worker was lost", timedelta(0))
                record = self._records[claim.key]
                if claim.changed_while_claimed and record.dead_at is not None:
                    self._redrive([record])  # the change put meanwhile has not failed

    def _rebuild_records(self, known_records: Iterable[TaskRecord]) -> None:
        """Build the records from the nodes. Errors, delays and leases of unchanged nodes come from `known_records`."""
        known = {}
        for record in known_records:
            is_claimed = self._claims.by_key(record.task.key) is not None
            known[record.node_id] = record if is_claimed else record.without_lease()
        records = [_merge_known(record, known.get(record.node_id)) for record in self._nodes.load_records()]
        self._ensure_low_first_watch({record.task.priority for record in records})
        self._records.replace_all(sorted(records, key=lambda record: record.queued_at))


def _merge_known(loaded: TaskRecord, known: TaskRecord | None) -> TaskRecord:
    if known is None or loaded.dead_at is not None or known.dead_at is not None:
        return loaded
    return known._replace(task=loaded.task)


def _claim_expired_error(claim_id: str) -> FolderError:
    return FolderError("E4505", f"the claim {claim_id} has expired", fields={"claim": claim_id})
