"""Runs the windows query while there are windowed subscriptions, so that an idle pipeline pays nothing for it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from vedette.pipeline.queries.windows import WINDOW_COUNTS_METRIC, start_windows_query
from vedette.pipeline.task import PipelineConfig
from vedette.subscriptions.index.versions import latest_version
from vedette.subscriptions.windows.windowed_subscriptions import windowed_subscriptions

__all__ = ["WindowsQueryRunner"]

log = logging.getLogger(__name__)


class WindowsQueryRunner:
    """Starts and stops the windows query. The checkpoint outlives the query, which continues where it stopped."""

    def __init__(self, spark: SparkSession, config: PipelineConfig, checkpoint: Path) -> None:
        self._spark, self._config, self._checkpoint = spark, config, checkpoint
        self._query: StreamingQuery | None = None
        self._last_batch = -1
        """The last batch whose counts were returned."""

    def start_or_stop(self) -> None:
        """Start the query if there is a windowed subscription, stop it if there is none, restart it if it ended."""
        index = self._config.index_folder
        is_needed = bool(windowed_subscriptions(index, latest_version(index)))
        if self._query is not None and not self._query.isActive:
            extra = {"action": "windows.restart"}
            log.error("The windows query ended and restarts: %s", self._query.exception(), extra=extra)
            self._query = None
        if is_needed and self._query is None:
            self._query = start_windows_query(self._spark, self._config, self._checkpoint)
        elif not is_needed:
            self.close()

    def take_counts(self) -> Mapping[str, int]:
        """Return the sums of the batches that ended since the last call: window_events, late, undeliverable."""
        totals: Counter[str] = Counter()
        for progress in self._query.recentProgress if self._query is not None else ():
            observed = progress["observedMetrics"].get(WINDOW_COUNTS_METRIC)
            if observed is not None and progress["batchId"] > self._last_batch:
                self._last_batch = progress["batchId"]
                totals.update({name: value or 0 for name, value in observed.asDict().items()})
        return totals

    def close(self) -> None:
        """Stop the query in the middle of a batch; the batch runs again when the query restarts."""
        if self._query is not None:
            self._query.stop()
            self._query = None
