"""Starts a streaming query, and starts it again if its source did not come up in time.

Spark runs a Python source in a process of its own on the driver and gives that process 10 s to connect. The limit is a
constant in Spark's PythonWorkerFactory. A busy machine can need longer, and then the query has ended before its first
batch. Nothing was read or delivered by then, so another start is safe.
"""

from __future__ import annotations

import logging
from threading import Event as Flag

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["MAX_STARTS", "start_query"]

log = logging.getLogger(__name__)
MAX_STARTS = 6
_POLL_SECONDS = 0.02
_TOO_SLOW = "Python worker failed to connect back"


def start_query(writer: DataStreamWriter) -> StreamingQuery:
    """Start the query and return it once its sources exist, or once it has failed for another reason."""
    query = writer.start()
    for number in range(1, MAX_STARTS):
        if not _source_was_too_slow(query):
            break
        log.warning(
            "The source process of %s did not connect to Spark in time: starting again (%d of %d)",
            query.name,
            number + 1,
            MAX_STARTS,
            extra={"action": "pipeline.start_again"},
        )
        query = writer.start()
    return query


def _source_was_too_slow(query: StreamingQuery) -> bool:
    """Wait until the query has its sources or has ended."""
    pause = Flag()
    while query.isActive:
        if not str(query.status["message"]).startswith("Initializing"):
            return False
        pause.wait(_POLL_SECONDS)
    return _TOO_SLOW in str(query.exception())
