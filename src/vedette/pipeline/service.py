"""The pipeline process: source readers, the compactor and the query, each restarted when it ends.

Only the query is on the path of a change. If the query fails (a killed planner, an unavailable store), it restarts
from its checkpoint: unaccepted changes are delivered again.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from vedette.clock import Clock, SystemClock
from vedette.control.controller import PipelineController, ServiceObjectives
from vedette.control.partition_status import PartitionStatusPublisher
from vedette.control.status import STATUS_FILE, figures_served
from vedette.errors import VedetteError
from vedette.handshake.tables.settings import HandshakeSettings
from vedette.handshake.tables.source_health import StoredSourceHealth
from vedette.pipeline.checkpoint import last_committed_offset
from vedette.pipeline.queries.changes import batch_counters, drain_and_stop, start_changes_query
from vedette.pipeline.queries.windows_runner import WindowsQueryRunner
from vedette.pipeline.session import LOCAL_MASTER, open_session
from vedette.pipeline.task import PipelineConfig
from vedette.sources.journal.seam import open_journal
from vedette.sources.reader_supervisor import ReaderSupervisor
from vedette.sources.records import Partition
from vedette.subscriptions.index.versions import Compactor, Manifest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.transport.ingest_messages import Complete
from vedette.values import timestamp_to_ms

__all__ = ["STATUS_FILE", "PipelineProcess"]

log = logging.getLogger(__name__)

INDEX_POLL_SECONDS, IDLE_INDEX_POLL_SECONDS = 0.02, 0.06
"""Seconds between checks of the compactor for changed subscriptions, and when there was none for POLLS_UNTIL_IDLE
checks."""
POLLS_UNTIL_IDLE = 100
MAINTENANCE_SECONDS = 10.0
PROGRESS_POLL_SECONDS = 0.5
IDLE_POLLS_PER_PROGRESS = 4
"""Polls between progress queries to the JVM while idle."""
MAX_RESTART_DELAY_SECONDS = 30.0


class PipelineProcess:
    """Call `run`; it returns after `stop` is set. One per data directory, because there may be only one compactor."""

    def __init__(
        self,
        home: Path,
        *,
        secret: str,
        store: str | None = None,
        master: str = LOCAL_MASTER,
        cores: int = 2,
        retention_seconds: float = 86_400.0,
        clock: Clock | None = None,
        chance: Random | None = None,
        session: SparkSession | None = None,
        targets: ServiceObjectives | None = None,
        metrics_port: int = 0,
        index_bytes: int = 1 << 30,
    ) -> None:
        """`store` is a PostgreSQL URL for journal and registry; without it they are files in the data directory."""
        self._home, self._master, self._cores = home, master, cores
        self._clock, self._chance = clock or SystemClock(), chance or Random(1)  # noqa: S311 - jitter
        self._retention_ms = int(retention_seconds * 1000)
        self._session = session
        self._journal = open_journal(store or home, self._clock)
        self._registry = SubscriptionRegistry(store or home, clock=self._clock)
        self._compactor = Compactor(self._registry, home / "index", self._clock)
        self._handshake = HandshakeSettings.load(home).open(home, self._clock)
        self._keeper = ReaderSupervisor(
            self._journal.address,
            self._clock,
            self._chance,
            lambda source, chance: StoredSourceHealth(source, self._handshake, self._clock, chance),
        )
        self.context = PipelineConfig(
            journal_url=self._journal.address,
            registry_url=self._registry.address,
            index_folder=home / "index",
            ingest_secret=secret,
            max_mapped_index_bytes=index_bytes,
        )
        self._states = PartitionStatusPublisher(self.context.ingest_secret)
        self._publish_lock = Lock()
        self._metrics_port = metrics_port
        self._judged = -1
        """The last batch of this checkpoint whose counts were recorded."""
        self._last_committed: Complete | None = None
        """The end of the last committed batch."""
        self.restarts = 0
        self._steering = PipelineController(
            self._journal,
            self._registry,
            self._compactor,
            self._clock,
            targets or ServiceObjectives(),
            self._publish_statuses,
        )
        self.spark_started = False
        """True once the Spark session exists; until then there is nothing to clean up."""

    def run(self, stop: Flag) -> None:
        """Returns when `stop` is set and everything has shut down."""
        self._write_status("starting")
        self._keeper.reconcile()
        tending = Thread(target=self._tend, args=(stop,), name="vedette-pipeline", daemon=True)
        tending.start()
        session = self._session or open_session(self._master, local_dir=self._home / "spark", ui=False)
        self.spark_started = True
        try:
            with figures_served(self._home, self._metrics_port):
                while not stop.is_set():
                    self._run_queries(session, stop)
        finally:
            stop.set()
            tending.join()
            self._keeper.close()
            self._handshake.close()
            self._states.close()
            if self._session is None:
                session.stop()
            self._write_status("stopped")
            self._registry.close()
            self._journal.close()

    def _run_queries(self, session: SparkSession, stop: Flag) -> None:
        self._remember_committed(last_committed_offset(self._home / "checkpoint"))
        query = start_changes_query(session, self.context, self._home / "checkpoint", shares=self._cores)
        windows = WindowsQueryRunner(session, self.context, self._home / "windows")
        try:
            looks, last = 0, None
            while query.isActive and not stop.is_set():
                if looks % IDLE_POLLS_PER_PROGRESS == 0 or not self._is_caught_up(last):
                    last = query.lastProgress  # some kB of JSON
                looks += 1
                self._record_batches(query, last)
                windows.start_or_stop()
                self._steering.add_counts(windows.take_counts())
                self._report_progress(last)
                stop.wait(PROGRESS_POLL_SECONDS)
        finally:
            problem = query.exception() if not query.isActive else None
            windows.close()
            drain_and_stop(query, self._clock)
        if not stop.is_set():
            self.restarts += 1
            extra = {"action": "pipeline.restart", "restarts": self.restarts}
            log.error("The matching query ended and restarts: %s", problem, extra=extra)
            self._write_status("restarting", problem=str(problem)[:500])
            if "E6006" in str(problem):
                self._reset_after_journal_gap()
            stop.wait(min(0.5 * 2.0 ** min(self.restarts, 6), MAX_RESTART_DELAY_SECONDS))

    def _is_caught_up(self, last: StreamingQueryProgress | None) -> bool:
        """True if the journal has nothing beyond this progress."""
        return last is not None and _progress(last, self._journal.last_offset())["behind"] == 0

    def _record_batches(self, query: StreamingQuery, last: StreamingQueryProgress | None) -> None:
        """Record the counts of completed batches. Reading many progress records costs more than reading the last."""
        if last is None or last["batchId"] <= self._judged:
            return
        for progress in query.recentProgress:
            counts = batch_counters(progress)
            if progress["batchId"] <= self._judged or counts is None:
                continue
            self._judged = progress["batchId"]
            self._steering.record_batch(
                msgspec.structs.asdict(counts), progress["durationMs"].get("triggerExecution", 0) / 1000
            )

    def _report_progress(self, last: StreamingQueryProgress | None) -> None:
        progress = _progress(last, self._journal.last_offset())
        offset = progress["offset"]
        self._remember_committed(progress)
        partitions = self._steering.check_lag(offset) if offset is not None else []
        self._write_status("running", **progress, partitions=partitions)

    def _remember_committed(self, end: dict[str, Any] | None) -> None:
        """Gateways learn it with the next status message."""
        if end is not None and end["offset"] and end["index_version"] is not None:
            self._last_committed = Complete(
                offset=end["offset"], share=0, shares=1, version=end["index_version"]
            )

    def _publish_statuses(self, partitions: Sequence[Partition]) -> None:
        modes = self._registry.modes()
        shown = [
            replace(p, state=modes[p.id]) if p.id in modes and p.state == "live" else p for p in partitions
        ]
        with self._publish_lock:
            self._states.publish(shown, self._registry.gateways(), self._last_committed)

    def _reset_after_journal_gap(self) -> None:
        """The journal was trimmed past our checkpoint: changes are lost, so all clients must resync."""
        for source in self._journal.sources():
            self._journal.set_state(source.name, "live", "the pipeline was away for too long", new_epoch=True)
        shutil.rmtree(self._home / "checkpoint", ignore_errors=True)
        self._judged = -1  # batch numbers start at 0 again
        log.error(
            "The journal was trimmed past the checkpoint; all subscribers must resync",
            extra={"action": "pipeline.gap"},
        )

    def _tend(self, stop: Flag) -> None:
        """Run the compactor often and other maintenance periodically."""
        due = self._clock.monotonic() + MAINTENANCE_SECONDS
        look, quiet = 0.0, 0
        published: Manifest | None = None
        while not stop.wait(INDEX_POLL_SECONDS if quiet < POLLS_UNTIL_IDLE else IDLE_INDEX_POLL_SECONDS):
            try:
                before, published = published, self._compactor.publish()
                quiet = quiet + 1 if published is before else 0
                now = self._clock.monotonic()
                if now >= look:
                    look = now + PROGRESS_POLL_SECONDS
                    self._keeper.reconcile()
                    self._publish_statuses(self._journal.partitions())
                if now >= due:
                    due = now + MAINTENANCE_SECONDS
                    self._registry.expire()
                    self._journal.trim(timestamp_to_ms(self._clock.now()) - self._retention_ms)
            except VedetteError as error:
                log.error(
                    "Pipeline maintenance failed: %s",
                    error,
                    extra={"action": "pipeline.upkeep", "code": error.code},
                )
            except (
                Exception
            ):  # a full disk or a defect: without maintenance, new subscriptions would never be matched
                log.exception("Pipeline maintenance failed", extra={"action": "pipeline.upkeep"})

    def _write_status(self, state: str, **more: Any) -> None:
        """Write the status shown by `vedette source status`, `/metrics` and the console; the file is replaced
        atomically."""
        figures = self._steering.figures(state=state, pid=os.getpid(), restarts=self.restarts, **more)
        draft = self._home / f".{STATUS_FILE}"
        draft.write_bytes(msgspec.json.encode(figures))
        draft.rename(self._home / STATUS_FILE)


def _progress(progress: StreamingQueryProgress | None, last: int) -> dict[str, Any]:
    if progress is None:
        return {"offset": None, "behind": None}
    end = json.loads(progress["sources"][0]["endOffset"] or "{}")
    offset = int(end.get("offset", 0))
    return {
        "offset": offset,
        "behind": last - offset,
        "index_version": end.get("index_version"),
        "batch_ms": progress["durationMs"].get("triggerExecution"),
    }
