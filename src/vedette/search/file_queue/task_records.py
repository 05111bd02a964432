"""What the owner of the queue knows of each task: at once here, and a moment later in the table that others read.

A thread writes the table when nothing came for `QUIET_SECONDS`, or after `PATIENCE` times that, in one transaction:
nobody waits for it, a burst has the machine to itself, and a task that came and went meanwhile is never written.
Looking at the whole table (`rows`, `counts` …) writes first. What cannot be written waits here until it can.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from threading import Condition, Event, Lock, Thread

from vedette.errors import StoreError
from vedette.search.file_queue.task_table import TaskRecord, TaskTable
from vedette.search.file_queue.tasks import TaskStatus, TaskView

__all__ = ["TaskRecords"]

log = logging.getLogger(__name__)

WRITE_DELAY_SECONDS = 0.2
"""Seconds; longer than the gap between two batches of a burst."""
MAX_WRITE_DELAYS = 10
MAX_DIRTY_TASKS = 50_000
"""Maximum unwritten tasks; above it the caller writes."""


class TaskRecords:
    """Used by the owner from one thread at a time. Closes the table."""

    def __init__(self, table: TaskTable) -> None:
        self._table = table
        self._held: Counter[str] = Counter()
        """Number of live tasks by watch."""
        self._keys: set[str] = set()
        """Keys of all tasks, dead or not. A key that is missing here is not in the table either."""
        self._records = 0
        """Counts changes."""
        self._changed = Condition()
        """Guards the next two attributes."""
        self._unwritten: dict[str, TaskRecord | None] = {}
        """By key; None for a deleted task."""
        self._being_written: Mapping[str, TaskRecord | None] = {}
        self._writing = Lock()
        self._closing = Event()
        self._thread = Thread(target=self._run, name="vedette-queue-table", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._thread.join()
        self.write()
        self._table.close()

    # ---- the owner's side

    def replace_all(self, images: Sequence[TaskRecord]) -> None:
        """Reset."""
        with self._writing, self._changed:
            self._unwritten.clear()
            self._table.replace_all(images)
            self._keys = {image.task.key for image in images}
            self._held = Counter(image.task.watch_id for image in images if image.dead_at is None)

    def add(self, images: Sequence[TaskRecord]) -> None:
        """Add new pending tasks."""
        if not images:
            return
        with self._changed:
            self._records += 1
            fresh = {image.task.key: image for image in images}
            self._unwritten.update(fresh)
            self._keys.update(fresh)
            self._held.update([image.task.watch_id for image in images])
        self._notify_writer()

    def update(self, changes: Sequence[tuple[TaskRecord | None, TaskRecord | None]]) -> None:
        """Replace records: before to after."""
        if not changes:
            return
        with self._changed:
            self._records += 1
            for before, after in changes:
                self._count(before, -1)
                self._count(after, 1)
                changed = after or before
                if changed is not None:
                    self._unwritten[changed.task.key] = after
                    (self._keys.discard if after is None else self._keys.add)(changed.task.key)
        self._notify_writer()

    def _notify_writer(self) -> None:
        with self._changed:
            many = len(self._unwritten) > MAX_DIRTY_TASKS
            self._changed.notify()
        if many:
            self.write()

    def by_key(self, keys: Iterable[str]) -> dict[str, TaskRecord]:
        found: dict[str, TaskRecord] = {}
        elsewhere = []
        with self._changed:
            for key in filter(self._keys.__contains__, keys):
                for some in (self._unwritten, self._being_written):
                    if key in some:
                        image = some[key]
                        if image is not None:
                            found[key] = image
                        break
                else:
                    elsewhere.append(key)
        return {**found, **self._table.by_key(elsewhere)}

    def depth(self) -> int:
        """Number of live tasks."""
        return self._held.total()

    def held(self) -> Mapping[str, int]:
        """The same by watch."""
        return {watch_id: count for watch_id, count in self._held.items() if count}

    # ---- the whole table

    def all(self) -> list[TaskRecord]:
        self.write()
        return self._table.all()

    def of_watch(self, watch_id: str) -> list[TaskRecord]:
        self.write()
        return self._table.of_watch(watch_id)

    def dead(self, path: str | None = None) -> list[TaskRecord]:
        self.write()
        return self._table.dead(path)

    def rows(self, now: datetime, *, status: TaskStatus | None, limit: int) -> list[TaskView]:
        self.write()
        return self._table.rows(now, status=status, limit=limit)

    def counts(self, now: datetime) -> Mapping[str, Mapping[TaskStatus, int]]:
        self.write()
        return self._table.counts(now)

    # ---- writing

    def _run(self) -> None:
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._unwritten or self._closing.is_set())
            self._wait_until_quiet()
            if not self.write():
                self._closing.wait(1.0)

    def _wait_until_quiet(self) -> None:
        for _ in range(MAX_WRITE_DELAYS):
            before = self._records
            if self._closing.wait(WRITE_DELAY_SECONDS) or self._records == before:
                return

    def write(self) -> bool:
        """Write pending records. Returns True if none is left."""
        with self._writing:
            with self._changed:
                some, self._unwritten = self._unwritten, {}
                self._being_written = some
            if not some:
                return True
            try:
                self._table.write(
                    [image for image in some.values() if image is not None],
                    [key for key, image in some.items() if image is None],
                )
            except StoreError as error:  # the operation is done and durable; only its record is not written
                log.warning(
                    "The queue table could not be written and is retried: %s",
                    error,
                    extra={"action": "queue.view_write_failed"},
                )
                with self._changed:
                    self._unwritten = {**some, **self._unwritten}
                return False
            finally:
                with self._changed:
                    self._being_written = {}
            return True

    def _count(self, image: TaskRecord | None, step: int) -> None:
        if image is not None and image.dead_at is None:
            self._held[image.task.watch_id] += step
