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

from vedette.handshake.config import HIGHEST_PRIORITY, refuse_unless

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
"""`key` is collection and path: one task per path. `generation` counts what was put since the task was made. `deletes`
says again what `operation` says, so that the order of the queue compares with no constant: then the engine ranks and
looks at a task when it hands it out, not when it comes, and keeps nothing for those that wait."""


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
    """The watch's, from 0 to 10. Deletes go ahead of all others whatever it is."""
    key: str = field(init=False, repr=False, compare=False)
    """Collection and path: there is one task of each."""

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            refuse_unless(False, "priority", self.priority, f"from 0 to {HIGHEST_PRIORITY}")
        object.__setattr__(self, "key", f"{self.collection}\n{self.path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
    """A task in a worker's hands, until it is acknowledged, given back, or its lease ends."""

    task: FileTask
    claim_id: str
    failed_attempts: int
    """Failed ones before this."""


class TaskStatus(StrEnum):
    PENDING = "pending"
    DELAYED = "delayed"
    """Failed, and waits to be tried again."""
    IN_PROGRESS = "in_progress"
    DEAD = "dead"
    """Failed too often, or for good: a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task as people see it, and as the SQL view `ingestion_queue` shows it."""

    task: FileTask
    status: TaskStatus
    queued_at: datetime
    attempts: int
    due_at: datetime | None
    """When a delayed one is tried again."""
    lease_until: datetime | None
    worker_id: str | None
    error: str | None


class QueueAdmin(Protocol):
    """What people do with a queue, also from outside of the process that owns it."""

    def list_tasks(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        """In the order in which they would be claimed; dead letters last."""
        ...

    def count_by_status(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        """By collection and status."""
        ...

    def retry_dead_letters(self, path: str | None = None) -> int:
        """Make dead letters pending again, of one path or all; how many. E4505 when that path has none."""
        ...

    def purge_dead_letters(self, before: datetime) -> int:
        """Forget dead letters older than that; how many."""
        ...


class FileQueue(QueueAdmin, Protocol):
    """The usual mistake: to acknowledge a task that was put again meanwhile, and so to lose the later change."""

    def put(self, tasks: Sequence[FileTask]) -> None:
        """Durable when it returns.

        One task per collection and path: of two, the later operation and the higher priority hold, and the age of the
        first. Put while it is in progress, it is due again after its acknowledgement.
        """
        ...

    def claim(self, limit: int, worker_id: str) -> list[ClaimedTask]:
        """Deletes first, then by priority and age; every so often low priorities first (`PriorityRotation`)."""
        ...

    def ack(self, claim_ids: Sequence[str]) -> list[str]:
        """Done. Returns those whose claim has ended: somebody else may have the task."""
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
        """Not done. Without `retry`, or after the fifth counted attempt, it becomes a dead letter."""
        ...

    def depth(self) -> int:
        """Tasks that wait, are delayed or in progress."""
        ...

    def tasks_per_watch(self) -> Mapping[str, int]:
        """By watch: tasks that are not dead."""
        ...

    def flush_view(self) -> None:
        """What was put so far is in `ingestion_queue` when it returns; else that follows a moment later."""
        ...

    def discard_watch(self, watch_id: str) -> int:
        """Forget the tasks of a watch that is removed; how many."""
        ...
