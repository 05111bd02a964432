"""The configuration of the pipeline, and the state of one task attempt.

Spark runs `MatchAndDeliver` once per task. Each attempt starts with a new `Task`, so a failed attempt in the same
Python worker leaves nothing behind. Objects that outlive a task are in `worker_cache`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from vedette.errors import PipelineError
from vedette.pipeline import worker_cache
from vedette.pipeline.schema import RangeEnd
from vedette.subscriptions.index.matcher import MatchCounts
from vedette.transport.ingest_client import IngestClient
from vedette.transport.ingest_messages import Complete, DeliveredChange, WindowResult
from vedette.transport.sampled_log import log_sampled
from vedette.transport.unaccepted import UnacceptedDeliveries

__all__ = ["COUNTS_COLUMN", "Counters", "PipelineConfig", "Task"]

log = logging.getLogger(__name__)
COUNTS_COLUMN = "counts"
"""The only column of the delivery query: `Counters` as JSON, one row per task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Addresses and limits, the same for every task. Spark pickles it and sends it to the executors."""

    journal_url: str
    """Address of the journal (vedette.sources.journal.seam.open_journal)."""
    registry_url: str
    """Address of the registry of gateways and their leases."""
    index_folder: Path
    """Folder of the index files. Every executor must see it."""
    ingest_secret: str = ""
    """Secret that a gateway requires before it accepts deliveries."""
    max_mapped_index_bytes: int = 1 << 30
    """Maximum bytes of the index that a worker keeps mapped."""


class Counters(msgspec.Struct, kw_only=True):
    """Counts of one task, or their sum over a batch. The field names are the keys of the JSON form."""

    changes: int = 0
    """Changes that were matched, once each, including those without a match."""
    deliveries: int = 0
    """Changes that gateways accepted, once per gateway."""
    matches: int = 0
    """Pairs of a change and a subscription."""
    undeliverable: int = 0
    """Deliveries to gateways whose lease expired."""
    quarantined: int = 0
    """Changes that could not be processed."""
    skipped: int = 0
    """Changes of degraded partitions, which are not delivered."""
    shed: int = 0
    """Matches of low-priority subscriptions that were skipped because the partition lags."""
    broadcast: int = 0
    """Unfiltered deliveries, sent while the index was unreliable."""
    retried_changes: int = 0
    """Changes of tasks that ran again after a failure."""
    candidates: int = 0
    """Pairs of an image and a subscription that the index proposed."""
    faults: int = 0
    """Filters that failed to evaluate for a document."""
    absent_keys: int = 0
    """Looked-up keys that no subscription has."""
    false_positive_keys: int = 0
    """Absent keys that passed a Bloom filter."""
    match_ms: float = 0.0
    """Milliseconds spent in the match stage."""

    def add_match(self, counts: MatchCounts) -> None:
        """Add the counts of one lookup in the index."""
        self.candidates += counts.candidates
        self.faults += counts.faults
        self.absent_keys += counts.absent_keys
        self.false_positive_keys += counts.false_positives

    def to_batch(self) -> pa.RecordBatch:
        """Encode as the one row that a task returns to Spark."""
        return pa.RecordBatch.from_pydict({COUNTS_COLUMN: [msgspec.json.encode(self).decode()]})

    @classmethod
    def sum(cls, texts: Iterable[str]) -> Counters:
        """Add up the JSON texts of all tasks of a batch."""
        total = cls()
        for text in texts:
            counts = msgspec.json.decode(text, type=cls)
            for name in cls.__struct_fields__:
                setattr(total, name, getattr(total, name) + getattr(counts, name))
        return total


@dataclass(slots=True)
class Task:
    """One attempt of a Spark task: its configuration, its counters and its unaccepted deliveries. Not thread-safe.

    The registry is opened on first use: a replay has none.
    """

    config: PipelineConfig
    attempt: int = 0
    """0 for the first attempt."""
    counters: Counters = field(default_factory=Counters)
    _outbox: UnacceptedDeliveries[DeliveredChange] | None = field(default=None, init=False)

    @classmethod
    def start(cls, config: PipelineConfig) -> Task:
        """Start an attempt. Outside Spark it is the first one."""
        worker_cache.set_index_limit(config.max_mapped_index_bytes)
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        if attempt:
            log_sampled("task.repeated", "task", f"Retrying task (attempt {attempt + 1})")
        return cls(config, attempt)

    @property
    def gateways(self) -> worker_cache.GatewayCache:
        """The live gateways."""
        return worker_cache.gateways(self.config.registry_url)

    @property
    def clients(self) -> worker_cache.ClientCache:
        """The worker's open connections to gateways."""
        return worker_cache.client_cache(self.config.ingest_secret)

    @property
    def outbox(self) -> UnacceptedDeliveries[DeliveredChange]:
        """The unaccepted deliveries of this attempt."""
        if self._outbox is None:
            self._outbox = UnacceptedDeliveries(self.gateways, self.clients, IngestClient.send_changes)
        return self._outbox

    def window_outbox(self) -> UnacceptedDeliveries[WindowResult]:
        """Return an empty outbox for window events, over the same connections."""
        return UnacceptedDeliveries(self.gateways, self.clients, IngestClient.send_window_events)

    def flush(self) -> None:
        """Wait until every live gateway has accepted everything sent so far, and count it."""
        sent = len(self.outbox)
        undeliverable = self.outbox.flush()
        self.counters.deliveries += sent - undeliverable
        self.counters.undeliverable += undeliverable

    def announce(self, range_end: RangeEnd) -> None:
        """Announce to every gateway that a share of the partitions is delivered up to an offset.

        Causal order needs this for idle partitions too. The task does not wait for unreachable gateways: the driver
        repeats the message (`control.partition_status`).
        """
        message = Complete(
            offset=range_end.offset,
            share=range_end.share,
            shares=range_end.shares,
            index_version=range_end.index_version,
        )
        for gateway in self.gateways.live():
            try:
                self.clients.get(gateway.address).send(message)
            except PipelineError as error:
                log.info(
                    "The end of a batch could not be sent to gateway %s: %s",
                    gateway.name,
                    error,
                    extra={"action": "deliver.announce_failed", "gateway": gateway.name},
                )
                self.clients.discard(gateway.address)
