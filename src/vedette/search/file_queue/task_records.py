"""The task records of the queue's owner: in memory, and written to the table `file_tasks` by a background thread.

The owner reads and changes the records in memory. Every change marks its key as dirty. The thread writes all dirty
keys in one transaction, once no change has happened for `WRITE_DELAY_SECONDS`, or after `MAX_WRITE_DELAYS` times that.
So a burst of changes does not wait for the table, and a task that is added and removed within the delay is never
written. The owner reads the table only once, when it starts: `stored_records` has the errors and delays of tasks.

The records of 100,000 tasks take 52 MB, with their paths and keys
(docs/design/decisions/0071-task-records-in-memory.md).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nsmallest
from threading import Condition, Event, Lock, Thread

from vedette.errors import StoreError
from vedette.search.file_queue.task_table import TaskRecord, TaskTable
from vedette.search.file_queue.tasks import FileOperation, TaskStatus, TaskView

__all__ = ["TaskRecords"]

log = logging.getLogger(__name__)

WRITE_DELAY_SECONDS = 0.2
"""Longer than the gap between two batches of a burst."""
MAX_WRITE_DELAYS = 10
"""The table is written after this many delays even if changes continue."""
MAX_DIRTY_TASKS = 50_000
"""With more dirty tasks than this, the thread that made the last change writes the table itself."""
RETRY_SECONDS = 1.0
"""Delay after a failed write."""


class TaskRecords:
    """One thread at a time may call the methods: the queue's owner holds its lock. `close` also closes the table."""

    def __init__(self, table: TaskTable) -> None:
        self._table = table
        self._live_tasks: Counter[str] = Counter()
        """Number of tasks that are not dead letters, by watch id."""
        self._changed = Condition()
        """Guards the next three attributes. The owner changes them; the writer thread reads them."""
        self._records: dict[str, TaskRecord] = {}
        """By task key, in the order in which the tasks were added."""
        self._dirty: dict[str, None] = {}
        """Keys of records that differ from the table. An ordered set: rows are inserted in the order of the tasks."""
        self._change_count = 0
        self._writing = Lock()
        """Held during a write. Acquired before `_changed`."""
        self._closing = Event()
        self._thread = Thread(target=self._run, name="vedette-queue-table", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write all dirty records and close the table."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._thread.join()
        self.write()
        self._table.close()

    # Changes

    def replace_all(self, records: Sequence[TaskRecord]) -> None:
        """Replace all records, in memory and in the table. Raises StoreError if the table cannot be written."""
        with self._writing, self._changed:
            self._table.replace_all(records)
            self._records = {record.task.key: record for record in records}
            self._dirty.clear()
            self._live_tasks = Counter(record.task.watch_id for record in records if record.dead_at is None)

    def put(self, records: Iterable[TaskRecord]) -> None:
        """Add records, or replace those with the same key."""
        with self._changed:
            for record in records:
                key = record.task.key
                self._count(self._records.get(key), -1)
                self._count(record, 1)
                self._records[key] = record
                self._dirty[key] = None
        self._notify_writer()

    def remove(self, keys: Iterable[str]) -> None:
        """Remove the records of deleted tasks. Unknown keys have no effect."""
        with self._changed:
            for key in keys:
                record = self._records.pop(key, None)
                if record is not None:
                    self._count(record, -1)
                    self._dirty[key] = None
        self._notify_writer()

    # Queries

    def __getitem__(self, key: str) -> TaskRecord:
        return self._records[key]

    def __iter__(self) -> Iterator[TaskRecord]:
        return iter(self._records.values())

    def find(self, keys: Iterable[str]) -> dict[str, TaskRecord]:
        """Return the records of those keys that have one."""
        return {key: self._records[key] for key in keys if key in self._records}

    def depth(self) -> int:
        """Number of tasks that are not dead letters."""
        return self._live_tasks.total()

    def tasks_per_watch(self) -> Mapping[str, int]:
        return {watch_id: count for watch_id, count in self._live_tasks.items() if count}

    def list_tasks(self, now: datetime, *, status: TaskStatus | None, limit: int) -> list[TaskView]:
        """In the order of high-first claims, dead letters last. `TASK_ORDER` is the same order in SQL."""
        rows = (
            (_claim_order(record), position, record)
            for position, record in enumerate(self._records.values())
            if status is None or record.status(now) is status
        )
        return [record.view(now) for _, _, record in nsmallest(limit, rows)]

    def count_by_status(self, now: datetime) -> Mapping[str, Mapping[TaskStatus, int]]:
        """Number of tasks by collection and status."""
        counts: dict[str, Counter[TaskStatus]] = {}
        for record in self._records.values():
            counts.setdefault(record.task.collection, Counter())[record.status(now)] += 1
        return counts

    def stored_records(self) -> Collection[TaskRecord]:
        """Return the records that the table has. For the start of the owner, before `replace_all`."""
        return self._table.all()

    # Writing

    def write(self) -> bool:
        """Write the dirty records. Return False if the table cannot be written; the records then stay dirty."""
        with self._writing:
            with self._changed:
                dirty, self._dirty = self._dirty, {}
                records = [self._records[key] for key in dirty if key in self._records]
                removed_keys = [key for key in dirty if key not in self._records]
            if not dirty:
                return True
            try:
                self._table.write(records, removed_keys)
            except StoreError as error:  # the tasks themselves are durable: they are nodes of the graph
                log.warning(
                    "Could not write the table of file tasks; retrying: %s",
                    error,
                    extra={"action": "queue.view_write_failed"},
                )
                with self._changed:
                    self._dirty = {**dirty, **self._dirty}
                return False
            return True

    def _notify_writer(self) -> None:
        with self._changed:
            self._change_count += 1
            too_many = len(self._dirty) > MAX_DIRTY_TASKS
            self._changed.notify()
        if too_many:
            self.write()

    def _run(self) -> None:
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._dirty or self._closing.is_set())
            self._wait_until_quiet()
            if not self.write():
                self._closing.wait(RETRY_SECONDS)

    def _wait_until_quiet(self) -> None:
        for _ in range(MAX_WRITE_DELAYS):
            before = self._change_count
            if self._closing.wait(WRITE_DELAY_SECONDS) or self._change_count == before:
                return

    def _count(self, record: TaskRecord | None, step: int) -> None:
        if record is not None and record.dead_at is None:
            self._live_tasks[record.task.watch_id] += step


def _claim_order(record: TaskRecord) -> tuple[bool, bool, int, datetime]:
    task = record.task
    return (
        record.dead_at is not None,
        task.operation is not FileOperation.DELETE,
        -task.priority,
        record.queued_at,
    )
