"""The pipeline process: starts Spark, runs the queries, restarts them when they end, and writes the status.

Theory of operation. Two threads share the work:

    the main loop     runs the delivery query and the windows query, reads their progress, feeds the controller
    maintenance       publishes the index, supervises source readers, trims stores (`pipeline_maintenance`)

Only the delivery query is on the path of a change. If it fails (a killed planner, an unavailable store), the loop
restarts it from its checkpoint, and unaccepted changes are delivered again.

Mode changes of lagging partitions are applied here, in this order: start the new epoch, publish it to the gateways,
then end the mode. A client that receives a later change has then been told to resync, and does not take the later
changes for a complete stream.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import Any

import msgspec

from vedette.clock import Clock, SystemClock
from vedette.control.controller import PipelineController, ServiceObjectives
from vedette.control.lag_policy import ModeChange
from vedette.control.metrics import serve_metrics
from vedette.control.status import write_status
from vedette.handshake.tables.settings import open_handshake_tables
from vedette.handshake.tables.source_health import StoredSourceHealth
from vedette.pipeline.checkpoint import delete_other_format, last_committed_offset
from vedette.pipeline.queries.changes_runner import BatchProgress, ChangesQueryRunner
from vedette.pipeline.queries.windows_runner import WindowsQueryRunner
from vedette.pipeline.session import LOCAL_MASTER, SparkSession, open_session
from vedette.pipeline.task import PipelineConfig
from vedette.processes.pipeline_maintenance import Maintenance, StatusFeed
from vedette.sources.journal.seam import open_journal
from vedette.sources.reader_supervisor import ReaderSupervisor
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.registry import SubscriptionRegistry

__all__ = ["PipelineProcess"]

log = logging.getLogger(__name__)
_audit = logging.getLogger("vedette.audit")

PROGRESS_POLL_SECONDS = 0.5
IDLE_POLLS_PER_PROGRESS = 4
"""While nothing is undelivered, the JVM is asked for its progress only at every fourth poll."""
MAX_RESTART_DELAY_SECONDS = 30.0
_FIRST_RESTART_DELAY_SECONDS = 1.0
_MAX_PROBLEM_CHARACTERS = 500


class PipelineProcess:
    """Call `run`; it returns after `stop` is set. One per data directory, because there may be only one compactor."""

    def __init__(
        self,
        data_directory: Path,
        *,
        secret: str,
        store: str | None = None,
        master: str = LOCAL_MASTER,
        cores: int = 2,
        retention_seconds: float = 86_400.0,
        clock: Clock | None = None,
        random: Random | None = None,
        session: SparkSession | None = None,
        objectives: ServiceObjectives | None = None,
        metrics_port: int = 0,
        max_mapped_index_bytes: int = 1 << 30,
        ui: bool = True,
    ) -> None:
        """`store` is a PostgreSQL URL for journal and registry; without it they are files in the data directory.

        `session` is an open Spark session, which `run` does not stop. `ui` enables Spark's web UI.
        """
        self._directory, self._master, self._cores, self._ui = data_directory, master, cores, ui
        self._clock = clock or SystemClock()
        random = random or Random(1)  # noqa: S311 - jitter
        self._session = session
        self._metrics_port = metrics_port
        self._journal = open_journal(store or data_directory, self._clock)
        self._registry = SubscriptionRegistry(store or data_directory, clock=self._clock)
        self._compactor = Compactor(self._registry, data_directory / "index", self._clock)
        self._handshake = open_handshake_tables(data_directory, self._clock)
        self._readers = ReaderSupervisor(
            self._journal.address,
            self._clock,
            random,
            lambda source, own: StoredSourceHealth(source, self._handshake, self._clock, own),
        )
        self.config = PipelineConfig(
            journal_url=self._journal.address,
            registry_url=self._registry.address,
            index_folder=data_directory / "index",
            ingest_secret=secret,
            max_mapped_index_bytes=max_mapped_index_bytes,
        )
        self._status_feed = StatusFeed(self._journal, self._registry, secret)
        self._maintenance = Maintenance(
            compactor=self._compactor,
            index_folder=data_directory / "index",
            readers=self._readers,
            journal=self._journal,
            registry=self._registry,
            status_feed=self._status_feed,
            clock=self._clock,
            retention_ms=int(retention_seconds * 1000),
        )
        self._controller = PipelineController(
            self._journal, self._registry, self._compactor, self._clock, objectives or ServiceObjectives()
        )
        self.restarts = 0
        self.spark_started = False
        """True once the Spark session exists; until then there is nothing to clean up."""

    @property
    def _checkpoint(self) -> Path:
        return self._directory / "checkpoint"

    def run(self, stop: Flag) -> None:
        """Return when `stop` is set and everything has shut down."""
        self._write_status("starting")
        self._readers.reconcile()
        maintenance = Thread(target=self._maintenance.run, args=(stop,), name="vedette-pipeline", daemon=True)
        maintenance.start()
        spark = self._session or open_session(self._master, local_dir=self._directory / "spark", ui=self._ui)
        self.spark_started = True
        try:
            with serve_metrics(self._directory, self._metrics_port):
                while not stop.is_set():
                    self._run_queries(spark, stop)
        finally:
            stop.set()
            maintenance.join()
            if self._session is None:
                spark.stop()
            self._write_status("stopped")
            self.close()

    def close(self) -> None:
        """Close stores and connections."""
        for part in (self._readers, self._handshake, self._status_feed, self._registry, self._journal):
            part.close()

    def _run_queries(self, spark: SparkSession, stop: Flag) -> None:
        """Run both queries until `stop` is set or the delivery query ends.

        If the query ended by itself, wait before returning: each restart in a row waits longer.
        """
        if delete_other_format(self._checkpoint):
            self._reset_subscribers("the checkpoint was written by another release")
        if (committed := last_committed_offset(self._checkpoint)) is not None:
            self._status_feed.remember_delivered(committed["offset"], committed["index_version"])
        changes = ChangesQueryRunner.start(spark, self.config, self._checkpoint, shares=self._cores)
        windows = WindowsQueryRunner(spark, self.config, self._directory / "windows")
        try:
            polls, last = 0, None
            while changes.is_active and not stop.is_set():
                if polls % IDLE_POLLS_PER_PROGRESS == 0 or not self._is_caught_up(last):
                    last = changes.read_progress()
                polls += 1
                for batch in changes.take_finished_batches(last) if last is not None else ():
                    self._controller.record_batch(msgspec.structs.asdict(batch.counters), batch.seconds)
                windows.start_or_stop()
                self._controller.add_counts(windows.take_counts())
                self._report_progress(last)
                stop.wait(PROGRESS_POLL_SECONDS)
        finally:
            failure = changes.failure()
            windows.close()
            changes.stop(self._clock)
        if not stop.is_set():
            self._prepare_restart(failure)
            doublings = min(self.restarts - 1, 10)
            stop.wait(min(_FIRST_RESTART_DELAY_SECONDS * 2.0**doublings, MAX_RESTART_DELAY_SECONDS))

    def _prepare_restart(self, problem: str) -> None:
        self.restarts += 1
        extra = {"action": "pipeline.restart", "restarts": self.restarts}
        log.error("The delivery query ended and restarts: %s", problem, extra=extra)
        self._write_status("restarting", problem=problem[:_MAX_PROBLEM_CHARACTERS])
        if "E6006" in problem:  # the journal was trimmed past the checkpoint
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._reset_subscribers("the journal was trimmed past the checkpoint")

    def _reset_subscribers(self, reason: str) -> None:
        """Changes were lost with the checkpoint: start a new epoch of every source, so that all clients resync."""
        for source in self._journal.sources():
            self._journal.set_state(source.name, "live", reason, new_epoch=True)
        extra = {"action": "pipeline.journal_gap", "reason": reason}
        log.error("All subscribers must resync: %s", reason, extra=extra)

    # --- progress ---------------------------------------------------------------------------------------------------

    def _is_caught_up(self, last: BatchProgress | None) -> bool:
        """Return True if the journal has nothing beyond this progress."""
        return last is not None and last.offset >= self._journal.last_offset()

    def _report_progress(self, progress: BatchProgress | None) -> None:
        if progress is None:
            self._write_status("running")
            return
        if progress.offset and progress.index_version is not None:
            self._status_feed.remember_delivered(progress.offset, progress.index_version)
        report = self._controller.check_lag(progress.offset)
        self._apply_mode_changes(report.mode_changes)
        self._write_status(
            "running",
            offset=progress.offset,
            undelivered_changes=self._journal.last_offset() - progress.offset,
            index_version=progress.index_version,
            batch_ms=progress.batch_ms,
            partitions=report.partitions,
        )

    def _apply_mode_changes(self, changes: Sequence[ModeChange]) -> None:
        """Apply in the order that the opening of this module explains."""
        for change in changes:
            if change.new_epoch:
                self._journal.start_new_epoch(change.partition)
                self._status_feed.publish()
            self._registry.set_mode(change.partition, change.mode)
            extra = {
                "action": "route.mode",
                "partition": change.partition,
                "mode": change.mode,
                "reason": change.reason,
            }
            _audit.warning(
                "Partition %d changed to mode %s: %s",
                change.partition,
                change.mode,
                change.reason,
                extra=extra,
            )

    def _write_status(self, state: str, **fields: Any) -> None:
        status = self._controller.status(state=state, pid=os.getpid(), restarts=self.restarts, **fields)
        write_status(self._directory, status)
