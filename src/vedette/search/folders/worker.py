"""The ingest worker: claim a batch of file tasks, ingest it, record the outcomes, settle the claims.

A file is stored and durable before its task is acknowledged. After a crash in between, the task runs again, which has
the same result, because replacing a file's chunks is idempotent.
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
from vedette.handshake.failures import Failure
from vedette.handshake.retry import decide_retry
from vedette.handshake.tables import HandshakeTables
from vedette.search.file_queue.tasks import ClaimedTask, FileOperation, FileQueue
from vedette.search.folders.intake import deferral_reason
from vedette.search.folders.outcomes import record_file_outcomes
from vedette.search.ingestion import FileIngestor, FileOutcome, IngestRequest

__all__ = ["BulkIngestor", "IngestWorker", "StepReport"]

log = logging.getLogger(__name__)

DEFER_DELAY = timedelta(seconds=5)
"""Delay of a task whose watch is paused or in backoff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The result of one step, in numbers of tasks."""

    done: int = 0
    failed: int = 0
    deferred: int = 0
    """Tasks whose watch is paused or in backoff; they are claimed again after `DEFER_DELAY`."""
    sink_is_down: bool = False
    """True if nothing was claimed because the circuit breaker of the sink is open."""


class BulkIngestor(FileIngestor, Protocol):
    """An ingestor for large batches, for example on Spark: faster for many files, slower for few."""

    def batch_size(self, backlog: int) -> int:
        """Return how many files to ingest as one batch when `backlog` tasks are queued. Never blocks.

        0 means that this ingestor is not worth its cost now, or is not ready yet.
        """
        ...


class IngestWorker:
    def __init__(
        self,
        tables: HandshakeTables,
        queue: FileQueue,
        ingestor: FileIngestor,
        clock: Clock,
        *,
        worker_id: str,
        batch_size: int = 64,
        health: HealthConfig | None = None,
        backoff: BackoffConfig | None = None,
        rng: Random | None = None,
        throughput: ThroughputMeter | None = None,
        bulk: BulkIngestor | None = None,
    ) -> None:
        """`batch_size` is the number of tasks per step without `bulk`. `throughput` counts completed tasks."""
        self._tables, self._queue, self._ingestor, self._clock = tables, queue, ingestor, clock
        self._bulk = bulk
        self._worker_id, self._batch_size = worker_id, batch_size
        self._health, self._backoff = health or HealthConfig(), backoff or BackoffConfig()
        self._rng = rng or system_random()
        self._throughput = throughput

    def step(self) -> StepReport:
        """Process one batch. Returns at once if there is nothing to do."""
        bulk_size = 0 if self._bulk is None else self._bulk.batch_size(self._queue.depth())
        admission = self._tables.system_state.admit_sink_tasks(bulk_size or self._batch_size, in_flight=0)
        if admission.max_tasks == 0:
            return StepReport(sink_is_down=True)
        claims = self._queue.claim(admission.max_tasks, self._worker_id)
        if not claims:
            return StepReport()
        admitted = self._admit(claims)
        requests = [_ingest_request(claim) for claim in admitted]
        ingestor = self._ingestor
        if self._bulk is not None and len(requests) > self._batch_size:
            ingestor = self._bulk
        outcomes = ingestor.ingest(requests)
        record_file_outcomes(self._tables, outcomes)
        self._settle(list(zip(admitted, outcomes, strict=True)))
        failed = sum(outcome.failure is not None for outcome in outcomes)
        done = len(admitted) - failed
        if self._throughput is not None and done:
            self._throughput.add_completed(done, self._clock.now())
        return StepReport(done=done, failed=failed, deferred=len(claims) - len(admitted))

    def _admit(self, claims: Sequence[ClaimedTask]) -> list[ClaimedTask]:
        """Return the claims whose watch may process files now. The others are deferred without counting an attempt.

        A watch that is paused by load queues no new tasks, but its queued tasks are processed: that reduces the load.
        Deletions are processed whatever the health of their watch.
        """
        reasons: dict[str, str | None] = {}
        in_flight: Counter[str] = Counter()
        admitted = []
        for claim in claims:
            watch_id = claim.task.watch_id
            if claim.task.operation is FileOperation.DELETE:
                admitted.append(claim)
                continue
            try:
                if watch_id not in reasons or in_flight[watch_id]:
                    reasons[watch_id] = self._deferral_reason(watch_id, in_flight[watch_id])
            except FolderError:  # the watch was removed, so the file must not be ingested
                self._queue.ack([claim.claim_id])
                continue
            reason = reasons[watch_id]
            if reason is None:
                in_flight[watch_id] += 1
                admitted.append(claim)
            else:
                self._queue.nack(claim.claim_id, error=reason, delay=DEFER_DELAY, counts_attempt=False)
        return admitted

    def _deferral_reason(self, watch_id: str, in_flight: int) -> str | None:
        row = self._tables.refresh_watch(watch_id)
        return deferral_reason(row, (), self._clock.now(), in_flight, self._health)

    def _settle(self, results: Sequence[tuple[ClaimedTask, FileOutcome]]) -> None:
        """Acknowledge successful tasks, return failed ones to the queue, and release the capacity of finished ones."""
        succeeded = {claim.claim_id: claim for claim, outcome in results if outcome.failure is None}
        expired = [succeeded.pop(claim_id) for claim_id in self._queue.ack(list(succeeded))]
        finished = list(succeeded.values())
        for claim, outcome in results:
            if outcome.failure is None:
                continue
            try:
                if not self._nack(claim, outcome.failure):
                    finished.append(claim)
            except FolderError as error:
                if error.code != "E4505":
                    raise
                expired.append(claim)
        for claim in expired:
            log.warning(
                "A claim expired before its task was finished; the task runs again: %s",
                claim.task.path,
                extra={
                    "action": "task.claim_expired",
                    "watch_id": claim.task.watch_id,
                    "path": claim.task.path,
                },
            )
        for watch_id, count in Counter(claim.task.watch_id for claim in finished).items():
            self._tables.system_state.release_capacity(watch_id, count, self._queue.depth())

    def _nack(self, claim: ClaimedTask, failure: Failure) -> bool:
        """Report the failure to the queue. Return True if the task will be retried."""
        decision = decide_retry(failure, claim.failed_attempts + 1, self._backoff, self._rng)
        self._queue.nack(
            claim.claim_id,
            error=failure.message,
            retry=decision.retry,
            delay=decision.delay,
            counts_attempt=decision.counts_attempt,
        )
        return decision.retry


def _ingest_request(claim: ClaimedTask) -> IngestRequest:
    task = claim.task
    return IngestRequest(
        path=task.path,
        watch_id=task.watch_id,
        collection=task.collection,
        delete=task.operation is FileOperation.DELETE,
    )
