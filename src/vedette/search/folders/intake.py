"""From a folder to the queue: changes become tasks if health, load and capacity allow.

Refused changes stay with the watcher, coalesced by path, and are offered again; nothing is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from vedette.clock import Clock
from vedette.handshake.config import HealthConfig
from vedette.handshake.exclusions import Exclusion, find_exclusion
from vedette.handshake.health import check_admission
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.rows import WatchRow
from vedette.search.file_queue.tasks import FileOperation, FileQueue, FileTask
from vedette.search.folders.overlapping_watches import OverlappingWatches
from vedette.sources.files.file_stamp import ChangeKind, FileChange

__all__ = ["FolderIntake", "deferral_reason"]

log = logging.getLogger(__name__)

CAPACITY_BATCH, SMALL_CAPACITY_BATCH = 1_000, 100
"""Tasks that request capacity together. After a refusal only few, at most `min_per_watch`, so that a small watch is
served under load."""
_OPERATIONS = {
    ChangeKind.CREATED: FileOperation.INGEST,
    ChangeKind.CHANGED: FileOperation.UPDATE,
    ChangeKind.MOVED: FileOperation.INGEST,
    ChangeKind.DELETED: FileOperation.DELETE,
}


def deferral_reason(
    row: WatchRow, paused_by_load: Collection[str], now: datetime, in_flight: int, config: HealthConfig
) -> str | None:
    """Why no file of this watch may be processed now; None if it may."""
    if row.paused_at is not None:
        return "paused by hand"
    if row.watch_id in paused_by_load:
        return "paused by load"
    answer = check_admission(row.health, now, in_flight, config)
    return None if answer.is_allowed else answer.reason


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
        """The last reported availability: reason, number of unreadable paths."""

    def accept(self, changes: Sequence[FileChange]) -> Collection[FileChange]:
        """Changes whose tasks are queued now."""
        row = self._tables.refresh_watch(self._watch_id)
        paused = self._tables.system_state.degradation().paused_watch_ids
        in_flight = self._queue.tasks_per_watch().get(self._watch_id, 0)
        reason = deferral_reason(row, paused, self._clock.now(), in_flight, self._health)
        asked_for = row.config.auto_ingest or row.rescan_requested_at is not None  # by `wqm watch sync`
        if reason is not None or not asked_for:
            return ()
        trial = row.health.circuit.state != "closed"
        taken, tasks = self._admit(row, changes[:1] if trial else changes)
        self._queue.put(tasks)
        return taken

    def _admit(self, row: WatchRow, changes: Sequence[FileChange]) -> tuple[list[FileChange], list[FileTask]]:
        """As many changes as the capacity allows, with their tasks."""
        exclusions, now = self._tables.exclusions(self._watch_id), self._clock.now()
        others = OverlappingWatches(self._tables, row.config, self._clock)
        depth = self._queue.depth()
        taken: list[FileChange] = []
        tasks: list[FileTask] = []

        def granted(block: Sequence[FileChange]) -> bool:
            more = tasks_for_changes(row, block, exclusions, others, now)
            if (
                more
                and not self._tables.system_state.request_capacity(self._watch_id, len(more), depth).granted
            ):
                return False
            taken.extend(block)
            tasks.extend(more)
            return True

        for block in _blocks(changes, CAPACITY_BATCH):
            if not granted(block) and not all(map(granted, _blocks(block, SMALL_CAPACITY_BATCH))):
                break
        return taken, tasks

    def mode_changed(self, mode: str, reason: str) -> None:
        self._tables.set_watch_mode(self._watch_id, mode)
        log.log(
            logging.WARNING if mode == "polling" else logging.INFO,
            "A folder is watched in %s mode: %s",
            mode,
            reason,
            extra={"action": "folder.mode", "watch_id": self._watch_id},
        )

    def availability_changed(self, down: str | None, unreadable: Sequence[tuple[str, str]]) -> None:
        """Stored and logged on change only, not after every scan."""
        if (down, len(unreadable)) == self._last_reported:
            return
        self._tables.set_availability(self._watch_id, down)
        self._last_reported = (down, len(unreadable))
        if down is not None or unreadable:
            log.warning(
                "A folder cannot be read completely: %s",
                down or "; ".join(f"{path}: {why}" for path, why in unreadable[:5]),
                extra={"action": "folder.unavailable", "watch_id": self._watch_id},
            )

    def scanned(self, began_at: datetime) -> None:
        """`wqm watch sync` reads `ingestion_queue` after a scan, so flush the view before reporting the scan as
        finished."""
        self._queue.flush_view()
        self._tables.record_scan(self._watch_id, began_at)


def tasks_for_changes(
    row: WatchRow,
    changes: Sequence[FileChange],
    exclusions: Sequence[Exclusion],
    others: OverlappingWatches,
    now: datetime,
) -> list[FileTask]:
    """A move is two tasks: delete the old path, ingest the new one. An excluded file has no chunks.

    A file that another watch of the collection covers is not deleted: that watch reports its deletion.
    """
    config = row.config
    root, watch_id, collection, priority = (
        config.path.rstrip("/"),
        config.watch_id,
        config.collection,
        config.watch_priority,
    )
    tasks: list[FileTask] = []

    def add(path: str, operation: FileOperation) -> None:
        if operation is not FileOperation.DELETE or not others.any_needs(path):
            tasks.append(
                FileTask(
                    path=path,
                    watch_id=watch_id,
                    collection=collection,
                    operation=operation,
                    priority=priority,
                )
            )

    for kind, relative, _, old_path in changes:
        if old_path is not None:
            add(f"{root}/{old_path}", FileOperation.DELETE)
        path = f"{root}/{relative}"
        left = bool(exclusions) and find_exclusion(exclusions, path, now) is not None
        add(path, FileOperation.DELETE if left else _OPERATIONS[kind])
    return tasks


def _blocks(changes: Sequence[FileChange], tasks: int) -> Iterator[Sequence[FileChange]]:
    size = tasks // 2  # a move is two tasks
    for start in range(0, len(changes), size):
        yield changes[start : start + size]
