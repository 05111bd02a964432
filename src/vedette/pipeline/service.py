"""The pipeline as a process: readers of sources, the compactor, and the query, each started again when it ends.

Nothing here is on the way of a change but the query itself. When the query ends with an error (a planner that was
killed, a store that was away) it is started again from its checkpoint: what was not accepted is delivered again.
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
from vedette.control.controller import Steering, Targets
from vedette.control.partition_status import StateTeller
from vedette.control.status import STATUS_FILE, figures_served
from vedette.errors import VedetteError
from vedette.handshake.tables.settings import Tuning
from vedette.handshake.tables.source_health import HandshakeCare
from vedette.pipeline.checkpoint import committed_offset
from vedette.pipeline.queries.changes import METRICS, start_stream, stop_stream
from vedette.pipeline.queries.delivering_source import COUNTS, sum_of_counts
from vedette.pipeline.queries.windows_runner import WindowKeeper
from vedette.pipeline.session import LOCAL_MASTER, open_session
from vedette.pipeline.task import PipelineContext
from vedette.sources.journal.seam import open_journal
from vedette.sources.reader_supervisor import SourceKeeper
from vedette.sources.records import Partition
from vedette.subscriptions.index.versions import Compactor, Manifest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.transport.ingest_messages import Complete
from vedette.values import timestamp_to_ms

__all__ = ["STATUS_FILE", "PipelineService"]

log = logging.getLogger(__name__)

PUBLISH_SECONDS, RESTING_PUBLISH_SECONDS = 0.02, 0.06
"""How often the compactor looks whether subscriptions have changed; and when they have not for `PATIENCE` looks."""
PATIENCE = 100
UPKEEP_SECONDS = 10.0
LOOK_SECONDS = 0.5
RESTING_LOOKS = 4
"""While nothing happens Java is asked how far it is only at every so many looks."""
LONGEST_PAUSE_SECONDS = 30.0


class PipelineService:
    """`run` until `stop` is set. One per home: the compactor must be alone."""

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
        targets: Targets | None = None,
        metrics_port: int = 0,
        index_bytes: int = 1 << 30,
    ) -> None:
        """`store`: a PostgreSQL URL for journal and registry; without, files in the home."""
        self._home, self._master, self._cores = home, master, cores
        self._clock, self._chance = clock or SystemClock(), chance or Random(1)  # noqa: S311 - jitter
        self._retention_ms = int(retention_seconds * 1000)
        self._session = session
        self._journal = open_journal(store or home, self._clock)
        self._registry = SubscriptionRegistry(store or home, clock=self._clock)
        self._compactor = Compactor(self._registry, home / "index", self._clock)
        self._handshake = Tuning.at(home).open(home, self._clock)
        self._keeper = SourceKeeper(
            self._journal.address,
            self._clock,
            self._chance,
            lambda source, chance: HandshakeCare(source, self._handshake, self._clock, chance),
        )
        self.context = PipelineContext(
            journal=self._journal.address,
            registry=self._registry.address,
            index=home / "index",
            secret=secret,
            index_bytes=index_bytes,
        )
        self._states = StateTeller(self.context)
        self._telling = Lock()
        self._metrics_port = metrics_port
        self._judged = -1
        """The last batch of this checkpoint whose counts were taken in."""
        self._reached: Complete | None = None
        """The end of the last batch that is committed."""
        self.restarts = 0
        self._steering = Steering(
            self._journal,
            self._registry,
            self._compactor,
            self._clock,
            targets or Targets(),
            self._tell_states,
        )
        self.has_begun = False
        """Whether Spark is there: before, nothing can be half done."""

    def run(self, stop: Flag) -> None:
        """Returns when `stop` is set and everything has ended in good order."""
        self._say("starting")
        self._keeper.tend()
        tending = Thread(target=self._tend, args=(stop,), name="vedette-pipeline", daemon=True)
        tending.start()
        session = self._session or open_session(self._master, work=self._home / "spark")
        self.has_begun = True
        try:
            with figures_served(self._home, self._metrics_port):
                while not stop.is_set():
                    self._run_query(session, stop)
        finally:
            stop.set()
            tending.join()
            self._keeper.close()
            self._handshake.close()
            self._states.close()
            if self._session is None:
                session.stop()
            self._say("stopped")
            self._registry.close()
            self._journal.close()

    def _run_query(self, session: SparkSession, stop: Flag) -> None:
        self._note_reached(committed_offset(self._home / "checkpoint"))
        query = start_stream(session, self.context, self._home / "checkpoint", shares=self._cores)
        windows = WindowKeeper(session, self.context, self._home / "windows", self._steering.count)
        try:
            looks, last = 0, None
            while query.isActive and not stop.is_set():
                if looks % RESTING_LOOKS == 0 or not self._is_told(last):
                    last = query.lastProgress  # some kB of JSON
                looks += 1
                self._judge(query, last)
                windows.tend()
                self._show(last)
                stop.wait(LOOK_SECONDS)
        finally:
            problem = query.exception() if not query.isActive else None
            windows.close()
            stop_stream(query, self._clock)
        if not stop.is_set():
            self.restarts += 1
            extra = {"action": "pipeline.restart", "restarts": self.restarts}
            log.error("The matching query ended and restarts: %s", problem, extra=extra)
            self._say("restarting", problem=str(problem)[:500])
            if "E6006" in str(problem):
                self._give_up_the_gap()
            stop.wait(min(0.5 * 2.0 ** min(self.restarts, 6), LONGEST_PAUSE_SECONDS))

    def _is_told(self, last: StreamingQueryProgress | None) -> bool:
        """Whether the journal has nothing that is not in this progress."""
        return last is not None and _progress(last, self._journal.last_offset())["behind"] == 0

    def _judge(self, query: StreamingQuery, last: StreamingQueryProgress | None) -> None:
        """Take in the counts of batches that have ended since. Asking for many of them costs more than for the last."""
        if last is None or last["batchId"] <= self._judged:
            return
        for progress in query.recentProgress:
            found = progress["observedMetrics"].get(METRICS)
            if progress["batchId"] <= self._judged or found is None:
                continue
            self._judged = progress["batchId"]
            counts = sum_of_counts(found[COUNTS])
            self._steering.batch(counts, progress["durationMs"].get("triggerExecution", 0) / 1000)

    def _show(self, last: StreamingQueryProgress | None) -> None:
        progress = _progress(last, self._journal.last_offset())
        offset = progress["offset"]
        self._note_reached(progress)
        partitions = self._steering.look(offset) if offset is not None else []
        self._say("running", **progress, partitions=partitions)

    def _note_reached(self, end: dict[str, Any] | None) -> None:
        """Gateways are told with the next word about partitions."""
        if end is not None and end["offset"] and end["version"] is not None:
            self._reached = Complete(offset=end["offset"], share=0, shares=1, version=end["version"])

    def _tell_states(self, partitions: Sequence[Partition]) -> None:
        modes = self._registry.modes()
        shown = [
            replace(p, state=modes[p.id]) if p.id in modes and p.state == "live" else p for p in partitions
        ]
        with self._telling:
            self._states.tell(shown, self._registry.gateways(), self._reached)

    def _give_up_the_gap(self) -> None:
        """The journal was trimmed past our checkpoint: nothing joins the two, so everybody must resync."""
        for source in self._journal.sources():
            self._journal.mark(source.name, "live", "the pipeline was away for too long", new_epoch=True)
        shutil.rmtree(self._home / "checkpoint", ignore_errors=True)
        self._judged = -1  # batches are numbered from 0 again
        log.error(
            "The journal was trimmed past the checkpoint; all subscribers must resync",
            extra={"action": "pipeline.gap"},
        )

    def _tend(self, stop: Flag) -> None:
        """The compactor often, everything else now and then."""
        due = self._clock.monotonic() + UPKEEP_SECONDS
        look, quiet = 0.0, 0
        published: Manifest | None = None
        while not stop.wait(PUBLISH_SECONDS if quiet < PATIENCE else RESTING_PUBLISH_SECONDS):
            try:
                before, published = published, self._compactor.publish()
                quiet = quiet + 1 if published is before else 0
                now = self._clock.monotonic()
                if now >= look:
                    look = now + LOOK_SECONDS
                    self._keeper.tend()
                    self._tell_states(self._journal.partitions())
                if now >= due:
                    due = now + UPKEEP_SECONDS
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
            ):  # a full disk, or a mistake of ours: without upkeep nothing new would ever be matched
                log.exception("Pipeline maintenance failed", extra={"action": "pipeline.upkeep"})

    def _say(self, state: str, **more: Any) -> None:
        """What `vedette source status`, `/metrics` and the console show; a file that is replaced whole."""
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
        "version": end.get("version"),
        "batch_ms": progress["durationMs"].get("triggerExecution"),
    }
