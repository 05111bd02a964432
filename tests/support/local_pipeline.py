"""The pipeline without Spark: the same data source, stages and messages, one micro-batch after another.

`LocalPipeline` remembers the end of the last delivered batch, as Spark's checkpoint does. It can crash in the middle
of a batch: the batch then runs again with the same range and the same index version, as on Spark.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

from vedette.control.partition_status import PartitionStatusPublisher
from vedette.pipeline.checkpoint import initial_offset
from vedette.pipeline.datasource import ChangesStreamReader, journal_options
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.topology import MatchAndDeliver
from vedette.pipeline.worker_cache import client_cache, close_connections
from vedette.sources.journal.seam import open_journal
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.registry import SubscriptionRegistry

__all__ = ["LocalPipeline"]

IDLE_SECONDS = 0.02


class LocalPipeline:
    """`step` runs one batch. `with pipeline:` runs batches in a thread."""

    def __init__(self, folder: Path, *, secret: str, store: str | None = None, max_rows: int = 1_000) -> None:
        self.journal = open_journal(store or folder)
        self.registry = SubscriptionRegistry(store or folder)
        self._compactor = Compactor(self.registry, folder / "index")
        self.context = PipelineConfig(
            journal_url=self.journal.address,
            registry_url=self.registry.address,
            index_folder=folder / "index",
            ingest_secret=secret,
        )
        start = initial_offset(folder / "checkpoint", self.journal.address)
        options = journal_options(self.context, start=start, max_rows=max_rows, max_wait_seconds=0)
        self._stream = ChangesStreamReader(options)
        self._states = PartitionStatusPublisher(self.context.ingest_secret)
        self._offset = self._stream.initialOffset()
        self._planned: dict[str, Any] | None = None
        self.crash_after_changes: int | None = None
        """Crash the next batch after this number of delivered changes."""
        self._stop = Flag()
        self._thread: Thread | None = None

    def step(self, *, publish: bool = True) -> bool:
        """Run one batch. Return False if there was none. A crashed batch is retried with the same plan."""
        if publish:
            self._compactor.publish()
        self._states.publish(self.journal.partitions(), self.registry.gateways())
        planned = self._planned or self._stream.latestOffset(self._offset, self._stream.getDefaultReadLimit())
        if planned == self._offset:
            return False
        self._planned = planned
        for task in self._stream.partitions(self._offset, planned):
            batches = self._stream.read(task)
            if self.crash_after_changes is not None:
                first = next(batches)
                list(MatchAndDeliver(self.context)(iter([first.slice(0, self.crash_after_changes)])))
                self.crash_after_changes = None
                client_cache.close()
                return True
            list(MatchAndDeliver(self.context)(batches))
        self._offset, self._planned = planned, None
        return True

    def run_until_idle(self) -> None:
        """Run batches until no change is left to deliver."""
        while self.step():
            pass

    def __enter__(self) -> LocalPipeline:
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.step():
                self._stop.wait(IDLE_SECONDS)

    def close(self) -> None:
        close_connections()
        self._states.close()
        self.registry.close()
        self.journal.close()
