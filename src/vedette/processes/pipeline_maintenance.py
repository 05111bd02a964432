"""The maintenance thread of the pipeline process: publishes the index, supervises readers, trims stores.

A failure never ends the thread: without it new subscriptions would never be matched. It is logged, and the next round
tries again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event as Flag
from threading import Lock

from vedette.clock import Clock
from vedette.control.partition_status import PartitionStatusPublisher
from vedette.errors import VedetteError
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.reader_supervisor import ReaderSupervisor
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.index.versions import oldest_version
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.transport.ingest_messages import Complete
from vedette.values import timestamp_to_ms

__all__ = ["Maintenance", "StatusFeed"]

log = logging.getLogger(__name__)

INDEX_POLL_SECONDS, IDLE_INDEX_POLL_SECONDS = 0.02, 0.06
"""Seconds between two checks for changed subscriptions. The second applies after POLLS_UNTIL_IDLE checks without a
change."""
POLLS_UNTIL_IDLE = 100
SUPERVISION_SECONDS = 0.5
"""Seconds between two checks of the source readers, and between two status messages to the gateways."""
TRIM_SECONDS = 10.0
"""Seconds between two rounds of expiry and trimming."""


class StatusFeed:
    """Publishes partition states and the delivered offset to the gateways. Thread-safe."""

    def __init__(self, journal: CollectionJournal, registry: SubscriptionRegistry, secret: str) -> None:
        self._journal, self._registry = journal, registry
        self._publisher = PartitionStatusPublisher(secret)
        self._lock = Lock()
        self._delivered: Complete | None = None
        """The end of the last committed batch."""

    def remember_delivered(self, offset: int, index_version: int) -> None:
        """Record the end of the last committed batch. Gateways receive it with the next `publish`."""
        self._delivered = Complete(offset=offset, share=0, shares=1, index_version=index_version)

    def publish(self) -> None:
        """Send changed partition states, with the mode of lagging partitions in place of `live`."""
        modes = self._registry.modes()
        partitions = [
            replace(p, state=modes[p.id]) if p.id in modes and p.state == "live" else p
            for p in self._journal.partitions()
        ]
        with self._lock:
            self._publisher.publish(partitions, self._registry.gateways(), self._delivered)

    def close(self) -> None:
        with self._lock:
            self._publisher.close()


@dataclass(kw_only=True)
class Maintenance:
    """Call `run` in a thread of its own."""

    compactor: Compactor
    index_folder: Path
    readers: ReaderSupervisor
    journal: CollectionJournal
    registry: SubscriptionRegistry
    status_feed: StatusFeed
    clock: Clock
    retention_ms: int
    """Age in milliseconds at which changes are deleted from the journal."""
    _idle_polls: int = field(default=0, init=False)
    _next_supervision: float = field(default=0.0, init=False)
    _next_trim: float = field(default=0.0, init=False)

    def run(self, stop: Flag) -> None:
        """Return when `stop` is set."""
        self._next_trim = self.clock.monotonic() + TRIM_SECONDS
        while not stop.wait(self._poll_seconds()):
            try:
                self.run_once()
            except VedetteError as error:
                extra = {"action": "pipeline.maintenance_failed", "code": error.code}
                log.error("Pipeline maintenance failed: %s", error, extra=extra)
            except Exception:  # for example a full disk
                extra = {"action": "pipeline.maintenance_failed"}
                log.exception("Pipeline maintenance failed", extra=extra)

    def run_once(self) -> None:
        """Publish the index if subscriptions changed, and do what else is due."""
        before = self.compactor.manifest
        self._idle_polls = self._idle_polls + 1 if self.compactor.publish() is before else 0
        now = self.clock.monotonic()
        if now >= self._next_supervision:
            self._next_supervision = now + SUPERVISION_SECONDS
            self.readers.reconcile()
            self.status_feed.publish()
        if now >= self._next_trim:
            self._next_trim = now + TRIM_SECONDS
            self.trim()

    def trim(self) -> None:
        """End expired subscriptions; delete old changes and subscriptions that no kept index version needs."""
        self.registry.expire()
        # Index versions that are kept have tombstones for these rows or do not contain them.
        self.registry.delete_ended(oldest_version(self.index_folder))
        self.journal.trim(timestamp_to_ms(self.clock.now()) - self.retention_ms)

    def _poll_seconds(self) -> float:
        return INDEX_POLL_SECONDS if self._idle_polls < POLLS_UNTIL_IDLE else IDLE_INDEX_POLL_SECONDS
