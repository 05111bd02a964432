"""The folder daemon: a watcher per enabled folder, the ingest worker, and periodic load checks.

It keeps no state of its own: watches, health and requests are read from the tables, so changes by `wqm` take effect
at the next step. `step` does all due work and returns; `run` calls it until `stop`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock

from vedette.clock import Clock
from vedette.errors import FolderError
from vedette.handshake.circuit_breaker import CircuitState
from vedette.handshake.config import WatchFolderConfig, WatchType
from vedette.handshake.degradation import LoadObservation, ThroughputMeter
from vedette.handshake.priority import effective_priority
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.rows import WatchRow
from vedette.handshake.tables.settings import HandshakeSettings
from vedette.search.file_queue.tasks import FileQueue, TaskStatus
from vedette.search.folders.intake import FolderIntake
from vedette.search.folders.process_memory import memory_usage
from vedette.search.folders.sync import open_folder
from vedette.search.folders.worker import BulkIngestor, IngestWorker, StepReport
from vedette.search.ingestion import FileIngestor
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.watcher import FolderWatcher, WatcherTiming

__all__ = ["DaemonTiming", "FolderDaemon"]

log = logging.getLogger(__name__)

_NOT_STARTED = "its watcher does not start"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTiming:
    idle_seconds: float = 0.05
    """Seconds between two idle steps; multiplied under load."""
    watch_refresh_seconds: float = 0.2
    """Seconds between two reads of the tables."""
    load_check_seconds: float = 5.0
    """Seconds between two load checks."""


class FolderDaemon:
    def __init__(
        self,
        tables: HandshakeTables,
        seen: FileStateStore,
        queue: FileQueue,
        ingestion: FileIngestor,
        clock: Clock,
        *,
        worker_id: str,
        timing: DaemonTiming | None = None,
        watcher_timing: WatcherTiming | None = None,
        bulk: BulkIngestor | None = None,
        tuning: HandshakeSettings | None = None,
    ) -> None:
        """`watcher_timing` applies to all folders except for the debounce, which each watch has. `bulk` ingests
        backlogs."""
        tuning = tuning or HandshakeSettings()
        self._health = tuning.health
        self._tables, self._seen, self._queue, self._clock = tables, seen, queue, clock
        self._timing, self._watching = timing or DaemonTiming(), watcher_timing or WatcherTiming()
        self._throughput = ThroughputMeter(tuning.degradation.throughput_window_seconds)
        self._drain = IngestWorker(
            tables,
            queue,
            ingestion,
            clock,
            worker_id=worker_id,
            throughput=self._throughput,
            bulk=bulk,
            health=tuning.health,
            backoff=tuning.backoff,
        )
        self._watchers: dict[str, tuple[WatchFolderConfig, FolderWatcher]] = {}
        self._next_watches = self._next_load = clock.monotonic()
        self._interval_multiplier = 1.0
        self._stopping = Event()
        self._stepping = Lock()
        tables.system_state.reconcile_capacity(queue.tasks_per_watch(), queue.depth())

    def run(self) -> None:
        """Run until `stop`, which any thread may call."""
        try:
            while not self._stopping.is_set():
                report = self.step()
                if report.done + report.failed == 0:
                    self._stopping.wait(self._timing.idle_seconds * self._interval_multiplier)
        finally:
            self.close()

    def stop(self) -> None:
        self._stopping.set()

    def step(self) -> StepReport:
        """Do all due work."""
        with self._stepping:
            return self._step()

    @contextmanager
    def remove_watch(self, watch_id: str) -> Iterator[None]:
        """Called from another thread: inside the block nothing of this removed watch is ingested or queued."""
        with self._stepping:
            self._reconcile_watchers()
            self._queue.discard_watch(watch_id)
            yield

    def _step(self) -> StepReport:
        now = self._clock.monotonic()
        if now >= self._next_watches:
            self._next_watches = now + self._timing.watch_refresh_seconds
            self._reconcile_watchers()
        if now >= self._next_load:
            self._next_load = now + self._timing.load_check_seconds
            self._check_load()
        return self._drain.step()

    def close(self) -> None:
        """Stop all watchers. Unreported changes are found at the next start."""
        for _, watcher in self._watchers.values():
            watcher.stop()
        self._watchers.clear()

    def watched_ids(self) -> set[str]:
        return set(self._watchers)

    def _reconcile_watchers(self) -> None:
        """Run one watcher per enabled or probing folder; restart it if its configuration changed."""
        rows = {row.watch_id: row for row in self._refreshed_watches()}
        wanted = {
            watch_id: row
            for watch_id, row in rows.items()
            if row.config.watch_type is not WatchType.SOURCE
            and (row.health.enabled or row.health.circuit.state == "half_open")
        }
        for watch_id, (config, watcher) in list(self._watchers.items()):
            if watch_id not in wanted or _needs_new_watcher(wanted[watch_id].config, config):
                watcher.stop()
                del self._watchers[watch_id]
        for watch_id in (
            self._queue.tasks_per_watch().keys() - rows.keys()
        ):  # removed: its text must not return
            self._queue.discard_watch(watch_id)
        for watch_id, row in wanted.items():
            if watch_id not in self._watchers:
                self._start(row)
            elif row.rescan_requested_at is not None:
                self._watchers[watch_id][1].request_rescan()

    def _refreshed_watches(self) -> Iterator[WatchRow]:
        for row in self._tables.watches():
            try:
                yield self._tables.refresh_watch(row.watch_id)
            except FolderError as error:
                if error.code != "E4501":  # removed since it was listed
                    raise

    def _start(self, row: WatchRow) -> None:
        """If a watcher does not start, the reason is stored with its watch; others continue, and it is retried."""
        before = row.unavailable_reason or ""
        try:
            self._watchers[row.watch_id] = (row.config, self._build_watcher(row))
            reason = None if before.startswith(_NOT_STARTED) else row.unavailable_reason
        except Exception as error:
            reason = f"{_NOT_STARTED}: {error}"
            if reason != before:
                log.exception(
                    "The watcher of a folder did not start; it is tried again",
                    extra={
                        "action": "folder.watcher_start_failed",
                        "watch_id": row.watch_id,
                        "path": row.config.path,
                    },
                )
        if reason != row.unavailable_reason:
            with suppress(FolderError):  # removed since it was listed
                self._tables.set_availability(row.watch_id, reason)

    def _build_watcher(self, row: WatchRow) -> FolderWatcher:
        timing = WatcherTiming(
            debounce_seconds=row.config.debounce_seconds,
            poll_seconds=self._watching.poll_seconds,
            rescan_seconds=self._watching.rescan_seconds,
            retry_seconds=self._watching.retry_seconds,
            tick_milliseconds=self._watching.tick_milliseconds,
        )
        watcher = FolderWatcher(
            open_folder(row, self._seen, self._clock),
            FolderIntake(row.watch_id, self._tables, self._queue, self._clock, self._health),
            self._clock,
            timing,
            stretch=lambda: self._interval_multiplier,
        )
        watcher.start()
        return watcher

    def _runnable_tasks(self) -> int:
        """Tasks that a worker could process now. Delayed tasks and a failed store do not count as load."""
        if self._tables.system_state.sink_breaker().state is not CircuitState.CLOSED:
            return 0
        return sum(
            count
            for each in self._queue.count_by_status().values()
            for status, count in each.items()
            if status in (TaskStatus.PENDING, TaskStatus.IN_PROGRESS)
        )

    def _check_load(self) -> None:
        now, depth = self._clock.now(), self._queue.depth()
        self._tables.system_state.reconcile_capacity(self._queue.tasks_per_watch(), depth)
        self._throughput.observe_backlog(self._runnable_tasks(), now)
        load = LoadObservation(
            queue_depth=depth,
            throughput=self._throughput.rate(now),
            memory_usage=memory_usage().used_share,
        )
        watches = [
            (row.watch_id, effective_priority(row.config.watch_priority, row.health, now))
            for row in self._tables.watches()
            if row.health.enabled
        ]
        before = self._interval_multiplier
        decision = self._tables.system_state.check_load(load, watches)
        self._interval_multiplier = decision.state.polling_interval_multiplier
        if decision.newly_paused or decision.resumed or before != self._interval_multiplier:
            log.warning(
                "The load level is %s; paused watches: %s; resumed watches: %s",
                decision.state.level.label,
                ", ".join(decision.newly_paused) or "none",
                ", ".join(decision.resumed) or "none",
                extra={"action": "load.changed", "level": decision.state.level.label},
            )


def _needs_new_watcher(one: WatchFolderConfig, other: WatchFolderConfig) -> bool:
    """The configuration from which a watcher is built; priority and health are read each time."""
    names = (
        "path",
        "patterns",
        "ignore_patterns",
        "recursive",
        "recursive_depth",
        "debounce_seconds",
        "collection",
    )
    return any(getattr(one, name) != getattr(other, name) for name in names)
