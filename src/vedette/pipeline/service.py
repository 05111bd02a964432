"""The pipeline as a process: readers of sources, the compactor, and the query, each started again when it ends.

Nothing here is on the way of a change but the query itself. When the query ends with an error (a planner that was
killed, a store that was away) it is started again from its checkpoint: what was not accepted is delivered again.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from vedette.clock import Clock, SystemClock
from vedette.errors import VedetteError
from vedette.pipeline.context import PipelineContext
from vedette.pipeline.index_health import IndexHealth, Verdict
from vedette.pipeline.partition_states import StateTeller
from vedette.pipeline.session import LOCAL_MASTER, open_session
from vedette.pipeline.stream import METRICS, start_stream, stop_stream
from vedette.sources.journal import open_journal
from vedette.sources.keeper import SourceKeeper
from vedette.subscriptions.index_files import Compactor
from vedette.subscriptions.registry import SubscriptionRegistry
from vedette.values import timestamp_to_ms

__all__ = ["STATUS_FILE", "PipelineService"]

log = logging.getLogger(__name__)

STATUS_FILE = "pipeline.json"
PUBLISH_SECONDS = 0.02
"""How often the compactor looks whether subscriptions have changed."""
UPKEEP_SECONDS = 10.0
LOOK_SECONDS = 0.25
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
    ) -> None:
        """`store`: a PostgreSQL URL for journal and registry; without, files in the home."""
        self._home, self._master, self._cores = home, master, cores
        self._clock, self._chance = clock or SystemClock(), chance or Random(1)  # noqa: S311 - jitter
        self._retention_ms = int(retention_seconds * 1000)
        self._session = session
        self._journal = open_journal(store or home, self._clock)
        self._registry = SubscriptionRegistry(store or home, clock=self._clock)
        self._compactor = Compactor(self._registry, home / "index", self._clock)
        self._keeper = SourceKeeper(self._journal.address, self._clock, self._chance)
        self.context = PipelineContext(
            journal=self._journal.address,
            registry=self._registry.address,
            index=home / "index",
            secret=secret,
        )
        self._states = StateTeller(self.context)
        self._health = IndexHealth()
        self._judged = -1
        self._totals: Counter[str] = Counter()
        self.restarts = 0

    def run(self, stop: Flag) -> None:
        """Returns when `stop` is set and everything has ended in good order."""
        self._say("starting")
        self._keeper.tend()
        tending = Thread(target=self._tend, args=(stop,), name="vedette-pipeline", daemon=True)
        tending.start()
        session = self._session or open_session(self._master, work=self._home / "spark")
        try:
            while not stop.is_set():
                self._run_query(session, stop)
        finally:
            stop.set()
            tending.join()
            self._keeper.close()
            self._states.close()
            if self._session is None:
                session.stop()
            self._registry.close()
            self._journal.close()
            self._say("stopped")

    def _run_query(self, session: SparkSession, stop: Flag) -> None:
        query = start_stream(session, self.context, self._home / "checkpoint", shares=self._cores)
        try:
            while query.isActive and not stop.is_set():
                self._judge(query)
                self._say(
                    "running",
                    **_progress(query, self._journal.last_offset()),
                    index=self._health.state,
                    totals=dict(self._totals),
                )
                stop.wait(LOOK_SECONDS)
        finally:
            problem = query.exception() if not query.isActive else None
            stop_stream(query, self._clock)
        if not stop.is_set():
            self.restarts += 1
            extra = {"action": "pipeline.restart", "restarts": self.restarts}
            log.error("The query ended and is started again: %s", problem, extra=extra)
            self._say("restarting", problem=str(problem)[:500])
            if "E6006" in str(problem):
                self._give_up_the_gap()
            stop.wait(min(0.5 * 2.0 ** min(self.restarts, 6), LONGEST_PAUSE_SECONDS))

    def _judge(self, query: StreamingQuery) -> None:
        """Take in the counts of batches that have ended since; act on what they say about the index."""
        for progress in query.recentProgress:
            found = progress["observedMetrics"].get(METRICS)
            if progress["batchId"] <= self._judged or found is None:
                continue
            self._judged = progress["batchId"]
            counts = {name: value or 0 for name, value in found.asDict().items()}
            self._totals.update({name: round(value) for name, value in counts.items()})
            verdict = self._health.observe(
                absent=counts["absent"],
                passed=counts["passed"],
                changes=counts["changes"],
                match_ms=counts["match_ms"],
                now=self._clock.monotonic(),
            )
            self._obey(verdict)

    def _obey(self, verdict: Verdict) -> None:
        if verdict.rebuild:
            for tenant, held in self._compactor.manifest.collections.items():
                for collection in held:
                    self._compactor.doubt(tenant, collection)
            log.warning("The index is built anew: %s", verdict.reason, extra={"action": "index.rebuild"})
        if verdict.fan_out != self._registry.fan_out():
            self._registry.set_fan_out(verdict.fan_out)
            extra = {"action": "route.broadcast", "fan_out": verdict.fan_out, "reason": verdict.reason}
            log.warning("Changes are%s broadcast", "" if verdict.fan_out else " no longer", extra=extra)

    def _give_up_the_gap(self) -> None:
        """The journal was trimmed past our checkpoint: nothing joins the two, so everybody must resync."""
        for source in self._journal.sources():
            self._journal.mark(source.name, "live", "the pipeline was away for too long", new_epoch=True)
        shutil.rmtree(self._home / "checkpoint", ignore_errors=True)
        log.error("The journal no longer reaches our checkpoint", extra={"action": "pipeline.gap"})

    def _tend(self, stop: Flag) -> None:
        """The compactor often, everything else now and then."""
        due = self._clock.monotonic() + UPKEEP_SECONDS
        look = 0.0
        while not stop.wait(PUBLISH_SECONDS):
            try:
                self._compactor.publish()
                now = self._clock.monotonic()
                if now >= look:
                    look = now + LOOK_SECONDS
                    self._keeper.tend()
                    self._states.tell(self._journal.partitions(), self._registry.gateways())
                if now >= due:
                    due = now + UPKEEP_SECONDS
                    self._registry.expire()
                    self._journal.trim(timestamp_to_ms(self._clock.now()) - self._retention_ms)
            except VedetteError as error:
                log.error("Upkeep failed: %s", error, extra={"action": "pipeline.upkeep", "code": error.code})

    def _say(self, state: str, **more: Any) -> None:
        """What `vedette source status` and the console show; a file that is replaced whole."""
        draft = self._home / f".{STATUS_FILE}"
        draft.write_text(json.dumps({"state": state, "restarts": getattr(self, "restarts", 0), **more}))
        draft.rename(self._home / STATUS_FILE)


def _progress(query: StreamingQuery, last: int) -> dict[str, Any]:
    progress = query.lastProgress
    if progress is None:
        return {"offset": None, "behind": None}
    end = json.loads(progress["sources"][0]["endOffset"] or "{}")
    offset = int(end.get("offset", 0))
    return {
        "offset": offset,
        "behind": last - offset,
        "version": end.get("version"),
        "batch": progress["batchId"],
        "batch_ms": progress["durationMs"].get("triggerExecution"),
    }
