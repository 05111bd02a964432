"""Create file tasks from the changes of a watched folder, if health, load and queue capacity allow it.

The watcher keeps a change that the intake refuses, merges it with later changes of the same path, and offers it again.
No change is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from vedette.clock import Clock
from vedette.handshake.config import HealthConfig
from vedette.handshake.exclusions import Exclusion
from vedette.handshake.health import check_admission
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.rows import WatchRow
from vedette.search.file_queue.tasks import FileQueue, FileTask
from vedette.search.folders.changes import plan_change
from vedette.search.folders.overlapping_watches import OverlappingWatches
from vedette.sources.files.file_stamp import FileChange

__all__ = ["FolderIntake", "deferral_reason"]

log = logging.getLogger(__name__)

CAPACITY_BATCH = 1_000
"""Number of tasks for which queue capacity is requested at once."""
SMALL_CAPACITY_BATCH = 100
"""Tasks that request capacity together after a refusal. At most `min_per_watch`, so that a watch with few tasks gets
its share under load."""
MAX_LOGGED_PATHS = 5
"""Unreadable paths that one log line lists."""


def deferral_reason(
    row: WatchRow, paused_by_load: Collection[str], now: datetime, in_flight: int, config: HealthConfig
) -> str | None:
    """Return why no file of this watch may be processed now, or None if it may."""
    if row.paused_at is not None:
        return "paused by hand"
    if row.watch_id in paused_by_load:
        return "paused by load"
    admission = check_admission(row.health, now, in_flight, config)
    return None if admission.is_allowed else admission.reason


class FolderIntake:
    """The listener of one watched folder (`vedette.sources.files.watcher.FolderListener`)."""

    def __init__(
        self,
        watch_id: str,
        tables: HandshakeTables,
        queue: FileQueue,
        clock: Clock,
        health: HealthConfig | None = None,
    ) -> None:
        self._watch_id, self._tables, self._queue, self._clock = watch_id, tables, queue, clock
        self._health = health or HealthConfig()
        self._last_reported: tuple[str | None, int] | None = None
        """The last stored availability: the reason, and the number of unreadable paths."""

    def accept(self, changes: Sequence[FileChange]) -> Collection[FileChange]:
        """Queue tasks for the changes. Return the changes whose tasks are queued durably."""
        row = self._tables.refresh_watch(self._watch_id)
        in_flight = self._queue.tasks_per_watch().get(self._watch_id, 0)
        reason = deferral_reason(
            row, self._tables.paused_by_load(), self._clock.now(), in_flight, self._health
        )
        # Without `auto_ingest`, changes are queued only after `wqm watch sync` has requested a scan.
        is_requested = row.config.auto_ingest or row.rescan_requested_at is not None
        if reason is not None or not is_requested:
            return ()
        is_probe = row.health.circuit.state != "closed"
        accepted, tasks = self._admit(row, changes[:1] if is_probe else changes)
        self._queue.put(tasks)
        return accepted

    def _admit(self, row: WatchRow, changes: Sequence[FileChange]) -> tuple[list[FileChange], list[FileTask]]:
        """Return the changes for which the queue has capacity, and their tasks."""
        exclusions, now = self._tables.exclusions(self._watch_id), self._clock.now()
        overlapping = OverlappingWatches(self._tables, row.config, self._clock)
        depth = self._queue.depth()
        accepted: list[FileChange] = []
        tasks: list[FileTask] = []

        def admit_block(block: Sequence[FileChange]) -> bool:
            block_tasks = tasks_for_changes(row, block, exclusions, overlapping, now)
            system_state = self._tables.system_state
            if (
                block_tasks
                and not system_state.request_capacity(self._watch_id, len(block_tasks), depth).granted
            ):
                return False
            accepted.extend(block)
            tasks.extend(block_tasks)
            return True

        for block in _blocks(changes, CAPACITY_BATCH):
            if not admit_block(block) and not all(map(admit_block, _blocks(block, SMALL_CAPACITY_BATCH))):
                break
        return accepted, tasks

    def mode_changed(self, mode: str, reason: str) -> None:
        self._tables.set_watch_mode(self._watch_id, mode)
        log.log(
            logging.WARNING if mode == "polling" else logging.INFO,
            "The folder of watch %s is watched in %s mode: %s",
            self._watch_id,
            mode,
            reason,
            extra={"action": "folder.mode", "watch_id": self._watch_id},
        )

    def availability_changed(self, down: str | None, unreadable: Sequence[tuple[str, str]]) -> None:
        """Called after every scan; stores and logs the availability only if it has changed."""
        if (down, len(unreadable)) == self._last_reported:
            return
        self._tables.set_availability(self._watch_id, down)
        self._last_reported = (down, len(unreadable))
        if down is not None or unreadable:
            log.warning(
                "The folder of watch %s cannot be read completely: %s",
                self._watch_id,
                down or "; ".join(f"{path}: {why}" for path, why in unreadable[:MAX_LOGGED_PATHS]),
                extra={"action": "folder.unavailable", "watch_id": self._watch_id},
            )

    def scan_finished(self, began_at: datetime) -> None:
        """`wqm watch sync` reads `ingestion_queue` after a scan, so flush the view before reporting the scan as
        finished."""
        self._queue.flush_view()
        self._tables.record_scan(self._watch_id, began_at)


def tasks_for_changes(
    row: WatchRow,
    changes: Sequence[FileChange],
    exclusions: Sequence[Exclusion],
    overlapping: OverlappingWatches,
    now: datetime,
) -> list[FileTask]:
    config = row.config
    root = config.path.rstrip("/")
    return [
        FileTask(
            path=path,
            watch_id=config.watch_id,
            collection=config.collection,
            operation=operation,
            priority=config.watch_priority,
        )
        for change in changes
        for path, operation in plan_change(change, root, exclusions, overlapping.any_needs, now).operations
    ]


def _blocks(changes: Sequence[FileChange], tasks: int) -> Iterator[Sequence[FileChange]]:
    size = tasks // 2  # a move is two tasks
    for start in range(0, len(changes), size):
        yield changes[start : start + size]
