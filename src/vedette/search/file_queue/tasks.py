"""File tasks, and the interface of a file queue.

`EngineFileQueue` implements the interface by a consume-mode WATCH over `FileTask` nodes; `vedette.testing.file_queue`
is its in-memory twin. `tests/contracts/test_file_queue.py` tests both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from vedette.handshake.config import HIGHEST_PRIORITY
from vedette.handshake.validation import require

__all__ = [
    "FILE_TASK_ONTOLOGY",
    "ClaimedTask",
    "FileOperation",
    "FileQueue",
    "FileTask",
    "QueueAdmin",
    "TaskStatus",
    "TaskView",
]

FILE_TASK_ONTOLOGY = """
node FileTask {
    key: String [required, unique],
    path: String [required],
    watch_id: String [required],
    collection: String [required],
    operation: String [required, in: ["ingest", "update", "delete"]],
    deletes: Bool = false,
    priority: Int = 5 [0..10],
    queued_at: Timestamp [required],
    generation: Int = 1
}
"""
"""`key` is `FileTask.key`. `generation` counts how often the task was put. `deletes` is true if `operation` is
`delete`, so that the ordering of the watch is a list of attributes without a comparison. The engine then ranks a task
when it delivers it, and stores no rank for pending tasks."""


class FileOperation(StrEnum):
    INGEST = "ingest"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """One pending operation on a file. A collection has at most one task per path."""

    path: str
    """Absolute."""
    watch_id: str
    collection: str
    operation: FileOperation
    priority: int
    """Priority of the watch, from 0 to 10 (highest). Deletions are claimed before all other tasks."""
    key: str = field(init=False, repr=False, compare=False)
    """Collection and path, separated by a newline. Unique among the tasks."""

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            require(False, "priority", self.priority, f"from 0 to {HIGHEST_PRIORITY}")
        object.__setattr__(self, "key", f"{self.collection}\n{self.path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
    """A task that a worker holds until it calls `ack` or `nack`, or until the lease expires."""

    task: FileTask
    claim_id: str
    failed_attempts: int
    """Failed attempts before this one."""


class TaskStatus(StrEnum):
    PENDING = "pending"
    DELAYED = "delayed"
    """Failed or deferred; waits for its next attempt."""
    IN_PROGRESS = "in_progress"
    DEAD = "dead"
    """Failed permanently: a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task as the SQL view `ingestion_queue` shows it."""

    task: FileTask
    status: TaskStatus
    queued_at: datetime
    attempts: int
    due_at: datetime | None
    """When a delayed task is tried again."""
    lease_until: datetime | None
    worker_id: str | None
    error: str | None


class QueueAdmin(Protocol):
    """Queries and administration, also from processes that do not own the queue."""

    def list_tasks(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        """Return tasks in the order of claims, dead letters last."""
        ...

    def count_by_status(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        """Return the number of tasks by collection and status."""
        ...

    def retry_dead_letters(self, path: str | None = None) -> int:
        """Make the dead letters of one path, or all, pending again. Return their number.

        Raises E4505 if the path has no dead letter.
        """
        ...

    def purge_dead_letters(self, before: datetime) -> int:
        """Delete the dead letters that failed before this time. Return their number."""
        ...


class FileQueue(QueueAdmin, Protocol):
    """A queue of file tasks for one owner process. Methods may be called from any thread.

    The usual mistake of an implementation: `ack` deletes a task that was put again while it was claimed, which loses
    the later change.
    """

    def put(self, tasks: Sequence[FileTask]) -> None:
        """Add tasks. They are durable when this returns.

        If the path has a task already, both are merged: the result has the later operation, the higher priority and
        the age of the first. A task that is put while it is claimed is delivered again after its acknowledgement.
        """
        ...

    def claim(self, limit: int, worker_id: str) -> list[ClaimedTask]:
        """Claim up to `limit` tasks: deletions first, then by priority and age.

        Some claims take low priorities first (`PriorityRotation`), so that they are not starved.
        """
        ...

    def ack(self, claim_ids: Sequence[str]) -> list[str]:
        """Acknowledge claims. Return the ids of those that had expired; another worker may have their tasks."""
        ...

    def nack(
        self,
        claim_id: str,
        *,
        error: str,
        retry: bool = True,
        delay: timedelta = timedelta(0),
        counts_attempt: bool = True,
    ) -> None:
        """Report a failure. The task is delivered again after `delay`.

        Without `retry`, or after the fifth counted attempt, the task becomes a dead letter. Raises E4505 if the claim
        has expired.
        """
        ...

    def depth(self) -> int:
        """Return the number of pending, delayed and claimed tasks."""
        ...

    def tasks_per_watch(self) -> Mapping[str, int]:
        """Return the number of pending, delayed and claimed tasks by watch id."""
        ...

    def flush_view(self) -> None:
        """Write all changes to the view `ingestion_queue` now. Otherwise this happens within about two seconds."""
        ...

    def discard_watch(self, watch_id: str) -> int:
        """Delete all tasks of a removed watch, also claimed ones. Return their number."""
        ...
