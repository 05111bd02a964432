"""In-memory twin of the file queue, which is a consume-mode WATCH over `FileTask` nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar

from vedette.clock import Clock
from vedette.errors import FolderError
from vedette.handshake.priority import PriorityRotation
from vedette.handshake.retry import MAX_REDELIVERIES
from vedette.search.file_queue.tasks import ClaimedTask, FileOperation, FileTask, TaskStatus, TaskView

__all__ = ["MemoryFileQueue"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class _Entry:
    task: FileTask
    queued_at: datetime
    rank: int
    """Orders tasks with the same timestamp by insertion."""
    attempts: int = 0
    due_at: datetime | None = None
    error: str | None = None
    dead_at: datetime | None = None
    claim_id: str | None = None
    lease_until: datetime | None = None
    worker_id: str | None = None
    put_while_claimed: bool = False
    """True if the task was put again while it was claimed."""


def _locked(method: Callable[P, R]) -> Callable[P, R]:
    """Take the lock and expire leases before the method runs."""

    @wraps(method)
    def locked(*arguments: P.args, **named: P.kwargs) -> R:
        queue = arguments[0]
        assert isinstance(queue, MemoryFileQueue)
        with queue.lock:
            queue.expire_leases()
            return method(*arguments, **named)

    return locked


class MemoryFileQueue:
    """A file queue in memory. Thread-safe. Claims expire after `lease` by the given clock."""

    def __init__(self, clock: Clock, lease: timedelta = timedelta(seconds=60)) -> None:
        self._clock, self._lease = clock, lease
        self.lock = RLock()
        self._entries: dict[str, _Entry] = {}
        self._rotation = PriorityRotation()
        self._count = 0

    @_locked
    def put(self, tasks: Sequence[FileTask]) -> None:
        for task in tasks:
            entry = self._entries.get(task.key)
            if entry is None or entry.dead_at is not None:
                self._entries[task.key] = self._new(task)
                continue
            entry.task, entry.put_while_claimed = _merged(entry.task, task), entry.claim_id is not None
            if entry.due_at is not None:  # the file has changed: failures of the old content no longer count
                entry.due_at, entry.attempts = None, 0

    @_locked
    def claim(self, limit: int, worker_id: str) -> list[ClaimedTask]:
        claimed = []
        low_first = self._rotation.low_first()
        self._rotation = self._rotation.next()
        now = self._clock.now()
        for entry in self._in_order(low_first=low_first)[:limit]:
            entry.claim_id = f"claim-{self._number()}"
            entry.lease_until, entry.worker_id, entry.due_at = now + self._lease, worker_id, None
            claimed.append(
                ClaimedTask(task=entry.task, claim_id=entry.claim_id, failed_attempts=entry.attempts)
            )
        return claimed

    @_locked
    def ack(self, claim_ids: Sequence[str]) -> list[str]:
        ended = []
        for claim_id in claim_ids:
            try:
                entry = self._claimed(claim_id)
            except FolderError:
                ended.append(claim_id)
                continue
            del self._entries[entry.task.key]
            if entry.put_while_claimed:
                self._entries[entry.task.key] = self._new(entry.task)
        return ended

    @_locked
    def nack(
        self,
        claim_id: str,
        *,
        error: str,
        retry: bool = True,
        delay: timedelta = timedelta(0),
        counts_attempt: bool = True,
    ) -> None:
        entry = self._claimed(claim_id)
        _clear_claim(entry)
        entry.error, entry.attempts = error, entry.attempts + int(counts_attempt)
        if entry.put_while_claimed:
            self._entries[entry.task.key] = self._new(entry.task)
        elif not retry:
            entry.dead_at = self._clock.now()
        elif not self._dead_letter_if_exhausted(entry, error):
            entry.due_at = self._clock.now() + delay if delay else None

    @_locked
    def depth(self) -> int:
        return sum(entry.dead_at is None for entry in self._entries.values())

    @_locked
    def list_tasks(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        entries = sorted(self._entries.values(), key=lambda entry: (entry.dead_at is not None, _order(entry)))
        rows = [self._row(entry) for entry in entries]
        return [row for row in rows if status is None or row.status is status][:limit]

    @_locked
    def count_by_status(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        found: dict[str, dict[TaskStatus, int]] = {}
        for entry in self._entries.values():
            by_status = found.setdefault(entry.task.collection, {})
            state = self._status(entry)
            by_status[state] = by_status.get(state, 0) + 1
        return found

    @_locked
    def tasks_per_watch(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for entry in self._entries.values():
            if entry.dead_at is None:
                found[entry.task.watch_id] = found.get(entry.task.watch_id, 0) + 1
        return found

    def flush_view(self) -> None:
        """No-op: the twin has no SQL view."""

    @_locked
    def retry_dead_letters(self, path: str | None = None) -> int:
        dead = [
            entry
            for entry in self._entries.values()
            if entry.dead_at is not None and path in (None, entry.task.path)
        ]
        for entry in dead:
            entry.dead_at, entry.attempts = None, 0
        if path is not None and not dead:
            raise FolderError("E4505", f"no dead letter has the path {path}", fields={"path": path})
        return len(dead)

    @_locked
    def discard_watch(self, watch_id: str) -> int:
        return self._forget([key for key, entry in self._entries.items() if entry.task.watch_id == watch_id])

    @_locked
    def purge_dead_letters(self, before: datetime) -> int:
        old = [key for key, e in self._entries.items() if e.dead_at is not None and e.dead_at < before]
        return self._forget(old)

    # Inside

    def expire_leases(self) -> None:
        """Count a failed attempt for every expired lease."""
        for entry in self._entries.values():
            if entry.claim_id is not None and not self._leased(entry):
                entry.attempts += 1
                again, entry.put_while_claimed = entry.put_while_claimed, False
                _clear_claim(entry)
                if self._dead_letter_if_exhausted(entry, "its worker was lost") and again:
                    entry.dead_at, entry.attempts = None, 0  # the newer task has not failed yet

    def _forget(self, keys: list[str]) -> int:
        for key in keys:
            del self._entries[key]
        return len(keys)

    def _new(self, task: FileTask) -> _Entry:
        return _Entry(task, self._clock.now(), self._number())

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _in_order(self, *, low_first: bool) -> list[_Entry]:
        ready = [entry for entry in self._entries.values() if self._status(entry) is TaskStatus.PENDING]
        return sorted(ready, key=lambda entry: _order(entry, low_first=low_first))

    def _leased(self, entry: _Entry) -> bool:
        return entry.lease_until is not None and self._clock.now() < entry.lease_until

    def _status(self, entry: _Entry) -> TaskStatus:
        if entry.dead_at is not None:
            return TaskStatus.DEAD
        if self._leased(entry):
            return TaskStatus.IN_PROGRESS
        waits = entry.due_at is not None and self._clock.now() < entry.due_at
        return TaskStatus.DELAYED if waits else TaskStatus.PENDING

    def _claimed(self, claim_id: str) -> _Entry:
        for entry in self._entries.values():
            if entry.claim_id == claim_id and self._leased(entry):
                return entry
        raise FolderError("E4505", f"the claim {claim_id} has ended", fields={"claim": claim_id})

    def _dead_letter_if_exhausted(self, entry: _Entry, error: str) -> bool:
        if entry.attempts <= MAX_REDELIVERIES:
            return False
        _clear_claim(entry)
        entry.error, entry.dead_at = error, self._clock.now()
        return True

    def _row(self, entry: _Entry) -> TaskView:
        status = self._status(entry)
        leased = status is TaskStatus.IN_PROGRESS
        return TaskView(
            task=entry.task,
            status=status,
            queued_at=entry.queued_at,
            attempts=entry.attempts,
            due_at=entry.due_at if status is TaskStatus.DELAYED else None,
            lease_until=entry.lease_until if leased else None,
            worker_id=entry.worker_id if leased else None,
            error=entry.error,
        )


def _order(entry: _Entry, *, low_first: bool = False) -> tuple[bool, int, datetime, int]:
    priority = entry.task.priority
    is_delete = entry.task.operation is FileOperation.DELETE
    return not is_delete, priority if low_first else -priority, entry.queued_at, entry.rank


def _merged(earlier: FileTask, later: FileTask) -> FileTask:
    return replace(later, priority=max(earlier.priority, later.priority))


def _clear_claim(entry: _Entry) -> None:
    entry.claim_id = entry.lease_until = entry.worker_id = None
