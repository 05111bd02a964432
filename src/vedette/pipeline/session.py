"""Spark sessions as the pipeline wants them. Each setting is here for a measured reason (docs/design/pipeline.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from vedette.errors import PipelineError

__all__ = ["LOCAL_MASTER", "open_session"]

LOCAL_MASTER = "local[2,4]"
"""Two cores, four attempts: with `local[2]` the first worker that dies ends the query."""
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",  # 25 ms instead of 67 ms a Python task
    "spark.python.daemon.module": "vedette.pipeline.worker_daemon",
    "spark.sql.adaptive.enabled": "false",  # plans are small and the same each time
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.scheduler.mode": "FAIR",  # windows and ingest never starve match
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
}


def open_session(
    master: str = LOCAL_MASTER, *, name: str = "vedette", work: Path | None = None, **more: str
) -> SparkSession:
    """The session of this process; E6303 when Spark or Java is not there. `more` are further settings of Spark."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings: Mapping[str, str] = {
        **_SETTINGS,
        **({"spark.local.dir": str(work)} if work is not None else {}),
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as problem:  # py4j and pyspark raise many kinds, all of them mean this
        text = f"Spark did not start ({problem}): is Java 17 or newer there? `vedette doctor` looks"
        raise PipelineError("E6303", text) from problem
    session.sparkContext.setLogLevel("ERROR")
    return session
