"""The file queue as ingest sees it: what a task is, and what a queue of them must do.

The queue itself is a consume-mode WATCH over `FileTask` nodes (ONTOLOGY). This is the seam it fills; the twin in memory
is `vedette.testing.file_queue`, and one contract test holds for both.
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
"""`key` is collection and path: one task per path. `generation` counts the puts of the task. `deletes` repeats
`operation`, so that the queue order compares with no constant: the engine then ranks a task when it is delivered,
not when it arrives, and stores nothing for waiting tasks."""


class FileOperation(StrEnum):
    INGEST = "ingest"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    path: str
    """Absolute."""
    watch_id: str
    collection: str
    operation: FileOperation
    priority: int
    """Priority of the watch, from 0 to 10. Deletions always come first."""
    key: str = field(init=False, repr=False, compare=False)
    """Collection and path; at most one task each."""

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            require(False, "priority", self.priority, f"from 0 to {HIGHEST_PRIORITY}")
        object.__setattr__(self, "key", f"{self.collection}\n{self.path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
    """A task held by a worker until it is acknowledged, released, or its lease expires."""

    task: FileTask
    claim_id: str
    failed_attempts: int
    """Failed attempts before this one."""


class TaskStatus(StrEnum):
    PENDING = "pending"
    DELAYED = "delayed"
    """Failed; waits for its next attempt."""
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
    """Administration of a queue, also from other processes."""

    def list_tasks(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        """In claim order; dead letters last."""
        ...

    def count_by_status(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        """By collection and status."""
        ...

    def retry_dead_letters(self, path: str | None = None) -> int:
        """Make dead letters pending again, of one path or all. Returns their number. Raises E4505 if that path has
        none."""
        ...

    def purge_dead_letters(self, before: datetime) -> int:
        """Delete dead letters older than that. Returns their number."""
        ...


class FileQueue(QueueAdmin, Protocol):
    """The usual mistake: acknowledging a task that was put again meanwhile, which would lose the later change."""

    def put(self, tasks: Sequence[FileTask]) -> None:
        """Durable when this returns.

        One task per collection and path: two are merged to the later operation, the higher priority and the age of
        the first. A task that is put while it is claimed is due again after its acknowledgement.
        """
        ...

    def claim(self, limit: int, worker_id: str) -> list[ClaimedTask]:
        """Deletions first, then by priority and age; periodically low priorities first (`PriorityRotation`)."""
        ...

    def ack(self, claim_ids: Sequence[str]) -> list[str]:
        """Acknowledge. Returns the claims that had expired: another worker may have the task."""
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
        """Report a failure. Without `retry`, or after the fifth counted attempt, the task becomes a dead letter."""
        ...

    def depth(self) -> int:
        """Number of pending, delayed and claimed tasks."""
        ...

    def tasks_per_watch(self) -> Mapping[str, int]:
        """Number of live tasks by watch."""
        ...

    def flush_view(self) -> None:
        """Write all tasks put so far to `ingestion_queue`; otherwise this happens a moment later."""
        ...

    def discard_watch(self, watch_id: str) -> int:
        """Delete the tasks of a removed watch. Returns their number."""
        ...
