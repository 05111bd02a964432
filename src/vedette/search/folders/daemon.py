"""The folder daemon: one watcher per enabled folder watch, the ingest worker, and periodic load checks.

Theory of operation. `step` does all work that is due and returns; `run` calls it until `stop`. Each step

    1. every `watch_refresh_seconds` reads the watches from the handshake tables, starts and stops watchers so that
       every enabled folder watch has one, and deletes the tasks of removed watches
    2. every `load_check_seconds` compares the load with the degradation levels, which may pause watches and multiply
       the polling intervals
    3. lets the worker process one batch of file tasks

The daemon keeps no state of its own that must survive: watches, health and requests are rows of the tables, so a change
by `wqm` takes effect at the next refresh. Watchers run in threads of their own and call `FolderIntake`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from vedette.search.vectors.store import VectorStore, remove_files
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.watcher import FolderWatcher, WatcherTiming

__all__ = ["DaemonTiming", "FolderDaemon"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTiming:
    idle_seconds: float = 0.05
    """Wait between two steps when the worker had nothing to do. Multiplied under load."""
    watch_refresh_seconds: float = 0.2
    """Interval between two reads of the watches from the tables."""
    load_check_seconds: float = 5.0
    """Interval between two load checks."""


class FolderDaemon:
    def __init__(
        self,
        tables: HandshakeTables,
        file_states: FileStateStore,
        queue: FileQueue,
        ingestor: FileIngestor,
        store: VectorStore,
        clock: Clock,
        *,
        worker_id: str,
        timing: DaemonTiming | None = None,
        watcher_timing: WatcherTiming | None = None,
        bulk: BulkIngestor | None = None,
        settings: HandshakeSettings | None = None,
    ) -> None:
        """`watcher_timing` applies to all folders, except for the debounce time, which each watch configures. `bulk`
        ingests backlogs."""
        settings = settings or HandshakeSettings()
        self._health = settings.health
        self._tables, self._file_states, self._queue, self._clock = tables, file_states, queue, clock
        self._store = store
        self._timing, self._watcher_timing = timing or DaemonTiming(), watcher_timing or WatcherTiming()
        self._throughput = ThroughputMeter(settings.degradation.throughput_window_seconds)
        self._worker = IngestWorker(
            tables,
            queue,
            ingestor,
            clock,
            worker_id=worker_id,
            throughput=self._throughput,
            bulk=bulk,
            health=settings.health,
            backoff=settings.backoff,
        )
        self._watchers: dict[str, tuple[WatchFolderConfig, FolderWatcher]] = {}
        """Running watchers by watch id, each with the configuration it was built from."""
        self._start_failures: dict[str, str] = {}
        """Watches whose watcher did not start, with the reason that was stored."""
        self._next_refresh = self._next_load_check = clock.monotonic()
        self._interval_multiplier = 1.0
        self._stopping = Event()
        self._stepping = Lock()
        """Held during a step, so that `remove_watch` runs between two steps."""
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
        """Do all work that is due. Return the report of the worker."""
        with self._stepping:
            now = self._clock.monotonic()
            if now >= self._next_refresh:
                self._next_refresh = now + self._timing.watch_refresh_seconds
                self._reconcile_watchers()
            if now >= self._next_load_check:
                self._next_load_check = now + self._timing.load_check_seconds
                self._check_load()
            return self._worker.step()

    def remove_watch(self, watch_id: str, collection: str, paths: Sequence[str]) -> int:
        """Stop the watcher of a removed watch, delete its tasks, and remove the chunks of these files.

        Return the number of files that had chunks. The row of the watch must be deleted already. Any thread may call
        this; it waits for the current step, so no task of the watch is in flight when the chunks are removed.
        """
        with self._stepping:
            self._reconcile_watchers()
            self._queue.discard_watch(watch_id)
            return remove_files(self._store, collection, paths)

    def close(self) -> None:
        """Stop all watchers. Changes that they have not reported are found at the next start."""
        for _, watcher in self._watchers.values():
            watcher.stop()
        self._watchers.clear()

    def watched_ids(self) -> set[str]:
        return set(self._watchers)

    # Watchers

    def _reconcile_watchers(self) -> None:
        """Run one watcher per enabled or probing folder watch. Restart a watcher whose configuration has changed."""
        rows = {row.watch_id: row for row in self._refreshed_watches()}
        to_watch = {
            watch_id: row
            for watch_id, row in rows.items()
            if row.config.watch_type is not WatchType.SOURCE
            and (row.health.enabled or row.health.circuit.state == "half_open")
        }
        for watch_id, (config, watcher) in list(self._watchers.items()):
            if watch_id not in to_watch or _needs_new_watcher(to_watch[watch_id].config, config):
                watcher.stop()
                del self._watchers[watch_id]
        # Tasks of removed watches would ingest their files again.
        for watch_id in self._queue.tasks_per_watch().keys() - rows.keys():
            self._queue.discard_watch(watch_id)
        for watch_id, row in to_watch.items():
            if watch_id not in self._watchers:
                self._start_watcher(row)
            elif row.rescan_requested_at is not None:
                self._watchers[watch_id][1].request_rescan()

    def _refreshed_watches(self) -> Iterator[WatchRow]:
        for row in self._tables.watches():
            try:
                yield self._tables.refresh_watch(row.watch_id)
            except FolderError as error:
                if error.code != "E4501":  # the watch was removed after `watches` had listed it
                    raise

    def _start_watcher(self, row: WatchRow) -> None:
        """Start a watcher. If it fails, store the reason with the watch; the next refresh tries again."""
        watch_id = row.watch_id
        try:
            watcher = self._build_watcher(row)
            if self._start_failures.pop(watch_id, None) is not None:
                self._store_availability(watch_id, None)
            watcher.start()
            self._watchers[watch_id] = (row.config, watcher)
        except Exception as error:
            reason = f"its watcher does not start: {error}"
            if self._start_failures.get(watch_id) == reason:
                return
            self._start_failures[watch_id] = reason
            self._store_availability(watch_id, reason)
            log.exception(
                "The watcher of watch %s did not start; retrying",
                watch_id,
                extra={
                    "action": "folder.watcher_start_failed",
                    "watch_id": watch_id,
                    "path": row.config.path,
                },
            )

    def _store_availability(self, watch_id: str, reason: str | None) -> None:
        with suppress(FolderError):  # the watch was removed after it was listed
            self._tables.set_availability(watch_id, reason)

    def _build_watcher(self, row: WatchRow) -> FolderWatcher:
        watcher = FolderWatcher(
            open_folder(row, self._file_states, self._clock),
            FolderIntake(row.watch_id, self._tables, self._queue, self._clock, self._health),
            self._clock,
            replace(self._watcher_timing, debounce_seconds=row.config.debounce_seconds),
        )
        watcher.set_interval_multiplier(self._interval_multiplier)
        return watcher

    # Load

    def _check_load(self) -> None:
        now, depth = self._clock.now(), self._queue.depth()
        self._tables.system_state.reconcile_capacity(self._queue.tasks_per_watch(), depth)
        self._throughput.observe_backlog(self._runnable_tasks(), now)
        load = LoadObservation(
            queue_depth=depth,
            throughput=self._throughput.rate(now),
            memory_usage=memory_usage().used_share,
        )
        priorities = [
            (row.watch_id, effective_priority(row.config.watch_priority, row.health, now))
            for row in self._tables.watches()
            if row.health.enabled
        ]
        decision = self._tables.system_state.check_load(load, priorities)
        multiplier = decision.state.polling_interval_multiplier
        has_changed = multiplier != self._interval_multiplier
        self._interval_multiplier = multiplier
        for _, watcher in self._watchers.values():
            watcher.set_interval_multiplier(multiplier)
        if decision.newly_paused or decision.resumed or has_changed:
            log.warning(
                "The load level is %s; newly paused watches: %s; resumed watches: %s",
                decision.state.level.label,
                ", ".join(decision.newly_paused) or "none",
                ", ".join(decision.resumed) or "none",
                extra={"action": "load.changed", "level": decision.state.level.label},
            )

    def _runnable_tasks(self) -> int:
        """Return the number of tasks that a worker could process now.

        Delayed tasks are no load, and neither are tasks that wait until the sink works again.
        """
        if self._tables.system_state.sink_breaker().state is not CircuitState.CLOSED:
            return 0
        return sum(
            count
            for counts in self._queue.count_by_status().values()
            for status, count in counts.items()
            if status in (TaskStatus.PENDING, TaskStatus.IN_PROGRESS)
        )


def _needs_new_watcher(one: WatchFolderConfig, other: WatchFolderConfig) -> bool:
    """Compare the fields from which a watcher is built. Priority and health are read again for every batch."""
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
