"""Keeps the query of windows running while somebody has one, and only then: an idle pipeline pays nothing for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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
    """`tend` now and then. The checkpoint outlives the query: it goes on where it was."""

    def __init__(
        self,
        session: SparkSession,
        context: PipelineConfig,
        checkpoint: Path,
        count: Callable[[Mapping[str, int]], object],
    ) -> None:
        """`count` is given the sums of each batch: `told`, `late`, `undeliverable`."""
        self._session, self._context, self._checkpoint, self._count = session, context, checkpoint, count
        self._query: StreamingQuery | None = None
        self._counted = -1

    def start_or_stop(self) -> None:
        wanted = bool(
            windowed_subscriptions(self._context.index_folder, latest_version(self._context.index_folder))
        )
        query = self._query
        if query is not None:
            self._take_in(query)
        if query is not None and not query.isActive:
            extra = {"action": "windows.restart"}
            log.error("The window query ended and restarts: %s", query.exception(), extra=extra)
            query = self._query = None
        if wanted and query is None:
            self._query = start_windows_query(self._session, self._context, self._checkpoint)
        elif query is not None and not wanted:
            self.close()

    def _take_in(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            found = progress["observedMetrics"].get(WINDOW_COUNTS_METRIC)
            if found is not None and progress["batchId"] > self._counted:
                self._counted = progress["batchId"]
                self._count({name: value or 0 for name, value in found.asDict().items()})

    def close(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None
