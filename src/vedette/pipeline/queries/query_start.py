"""Start a streaming query in a scheduler pool of its own, again if its source process did not connect in time.

Spark runs a Python source in a process of its own on the driver and gives that process 10 s to connect. The limit is a
constant in Spark's PythonWorkerFactory. On a busy machine the process may need longer, and then the query ends before
its first batch. Nothing was read or delivered by then, so another start is safe.
"""

from __future__ import annotations

import logging
from threading import Event as Flag

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["MAX_STARTS", "start_query"]

log = logging.getLogger(__name__)
MAX_STARTS = 6
_POLL_SECONDS = 0.02
_NOT_CONNECTED = "Python worker failed to connect back"
"""Part of Spark's error message."""


def start_query(spark: SparkSession, name: str, writer: DataStreamWriter) -> StreamingQuery:
    """Start the query and return it once its sources exist, or once it has failed for another reason.

    The query's jobs run in the scheduler pool `name`, so that Spark's FAIR scheduler shares cores between queries.
    """
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", name)  # the query's thread inherits it
    try:
        query = writer.queryName(name).start()
        for attempt in range(2, MAX_STARTS + 1):
            if not _source_did_not_connect(query):
                break
            log.warning(
                "The source process of %s did not connect to Spark in time: starting again (%d of %d)",
                name,
                attempt,
                MAX_STARTS,
                extra={"action": "pipeline.start_again"},
            )
            query = writer.start()
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    return query


def _source_did_not_connect(query: StreamingQuery) -> bool:
    """Wait until the query has its sources or has ended."""
    pause = Flag()
    while query.isActive:
        if not str(query.status["message"]).startswith("Initializing"):
            return False
        pause.wait(_POLL_SECONDS)
    return _NOT_CONNECTED in str(query.exception())
