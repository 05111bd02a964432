"""From the queue to the vector store: claim a batch, ingest it, acknowledge file by file, tell the handshake.

The order is what keeps everything: a file is stored and durable before its task is acknowledged. Whoever dies in
between does it once more, and that is the same as once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Protocol

from vedette.clock import Clock, system_random
from vedette.errors import FolderError
from vedette.handshake.config import BackoffConfig, HealthConfig
from vedette.handshake.degradation import ThroughputMeter
from vedette.handshake.failures import Failure, FaultDomain
from vedette.handshake.retry import decide_retry
from vedette.handshake.tables import HandshakeTables
from vedette.search.file_queue.tasks import ClaimedTask, FileOperation, FileQueue
from vedette.search.folders.intake import deferral_reason
from vedette.search.ingestion import FileIngestor, FileOutcome, IngestRequest

__all__ = ["BulkIngestor", "IngestWorker", "StepReport"]

log = logging.getLogger(__name__)

DEFER_DELAY = timedelta(seconds=5)
"""How long a task of a watch that may not go on is put aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one step did."""

    done: int = 0
    failed: int = 0
    deferred: int = 0
    """Put aside: their watch is paused or backs off."""
    sink_is_down: bool = False
    """Nothing was claimed: the sink is down."""


class BulkIngestor(FileIngestor, Protocol):
    """Where large batches go: quicker for many files, slower for few."""

    def batch_size(self, waiting: int) -> int:
        """How many files to hand over as one batch when so many wait; 0: do them without. Never waits."""
        ...


class IngestWorker:
    def __init__(
        self,
        tables: HandshakeTables,
        queue: FileQueue,
        ingestion: FileIngestor,
        clock: Clock,
        *,
        worker_id: str,
        batch: int = 64,
        health: HealthConfig | None = None,
        backoff: BackoffConfig | None = None,
        rng: Random | None = None,
        throughput: ThroughputMeter | None = None,
        bulk: BulkIngestor | None = None,
    ) -> None:
        self._bulk = bulk
        self._tables, self._queue, self._ingestion, self._clock = tables, queue, ingestion, clock
        self._worker_id, self._batch = worker_id, batch
        self._health, self._backoff = health or HealthConfig(), backoff or BackoffConfig()
        self._rng = rng or system_random()
        self._throughput = throughput

    def step(self) -> StepReport:
        """One batch. Nothing waits in here: call it again when there is something to do."""
        bulk = 0 if self._bulk is None else self._bulk.batch_size(self._queue.depth())
        flow = self._tables.system_state.admit_sink_tasks(bulk or self._batch, in_flight=0)
        if flow.max_tasks == 0:
            return StepReport(sink_is_down=True)
        claims = self._queue.claim(flow.max_tasks, self._worker_id)
        if not claims:
            return StepReport()
        ready = self._admit(claims)
        files = [_file(claim) for claim in ready]
        ingestor = self._bulk if self._bulk is not None and len(files) > self._batch else self._ingestion
        outcomes = ingestor.ingest(files)
        failed = self._record(outcomes)
        self._settle(list(zip(ready, outcomes, strict=True)))
        done = len(ready) - failed
        if self._throughput is not None and done:
            self._throughput.add_completed(done, self._clock.now())
        return StepReport(done=done, failed=failed, deferred=len(claims) - len(ready))

    def _admit(self, claims: Sequence[ClaimedTask]) -> list[ClaimedTask]:
        """Those whose watch may go on; the others are put aside, with no attempt counted.

        A watch that is paused by load adds nothing, but what it has added is done: how else should the load go down?
        """
        reasons: dict[str, str | None] = {}
        in_flight: Counter[str] = Counter()
        ready = []
        for claim in claims:
            watch_id = claim.task.watch_id
            if claim.task.operation is FileOperation.DELETE:
                ready.append(claim)  # what is gone is taken out whatever the health of its watch
                continue
            try:
                if watch_id not in reasons or in_flight[watch_id]:
                    reasons[watch_id] = self._deferral_reason(watch_id, in_flight[watch_id])
            except FolderError:  # removed meanwhile: its text shall not come back
                self._queue.ack([claim.claim_id])
                continue
            reason = reasons[watch_id]
            if reason is None:
                in_flight[watch_id] += 1
                ready.append(claim)
            else:
                self._queue.nack(claim.claim_id, error=reason, delay=DEFER_DELAY, counts_attempt=False)
        return ready

    def _deferral_reason(self, watch_id: str, in_flight: int) -> str | None:
        row = self._tables.refresh_watch(watch_id)
        return deferral_reason(row, (), self._clock.now(), in_flight, self._health)

    def _record(self, outcomes: Sequence[FileOutcome]) -> int:
        """Tell the handshake, watch by watch; how many failed."""
        failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
        for watch_id in dict.fromkeys(outcome.file.watch_id for outcome in outcomes):
            mine = [outcome for outcome in outcomes if outcome.file.watch_id == watch_id]
            fine = [each.file.path for each in mine if each.failure is None and not each.file.delete]
            failed = [each.failure for each in mine if each.failure is not None]
            try:
                recorded = self._tables.record_outcomes(watch_id, succeeded=fine, failed=failed)
            except FolderError:
                continue  # removed meanwhile
            if recorded.circuit_opened:
                log.warning(
                    "The circuit breaker of a watch opened; the watch is disabled until the cooldown ends",
                    extra={"action": "watch.disabled", "watch_id": watch_id},
                )
            for exclusion in recorded.new_exclusions:
                log.warning(
                    "A file failed repeatedly and is excluded: %s",
                    exclusion.value,
                    extra={"action": "file.excluded", "watch_id": watch_id, "path": exclusion.value},
                )
        if any(failure.policy.fault_domain is FaultDomain.SINK for failure in failures):
            self._tables.system_state.record_sink_failure()
        elif outcomes:
            self._tables.system_state.record_sink_success()
        return len(failures)

    def _settle(self, answers: Sequence[tuple[ClaimedTask, FileOutcome]]) -> None:
        good = {claim.claim_id: claim for claim, outcome in answers if outcome.failure is None}
        expired = [good.pop(claim_id) for claim_id in self._queue.ack(list(good))]
        over = list(good.values())
        for claim, outcome in answers:
            if outcome.failure is None:
                continue
            try:
                if not self._nack(claim, outcome.failure):
                    over.append(claim)
            except FolderError as error:
                if error.code != "E4505":
                    raise
                expired.append(claim)
        for claim in expired:  # the lease expired; another worker repeats the task
            log.warning(
                "A claim expired before its task was finished; the task runs again",
                extra={
                    "action": "task.claim_expired",
                    "watch_id": claim.task.watch_id,
                    "path": claim.task.path,
                },
            )
        for watch_id, count in Counter(claim.task.watch_id for claim in over).items():
            self._tables.system_state.release_capacity(watch_id, count, self._queue.depth())

    def _nack(self, claim: ClaimedTask, failure: Failure) -> bool:
        """Whether it is tried again."""
        decision = decide_retry(failure, claim.failed_attempts + 1, self._backoff, self._rng)
        self._queue.nack(
            claim.claim_id,
            error=failure.message,
            retry=decision.retry,
            delay=decision.delay,
            counts_attempt=decision.counts_attempt,
        )
        return decision.retry


def _file(claim: ClaimedTask) -> IngestRequest:
    task = claim.task
    return IngestRequest(
        path=task.path,
        watch_id=task.watch_id,
        collection=task.collection,
        delete=task.operation is FileOperation.DELETE,
    )
