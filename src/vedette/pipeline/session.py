"""Spark sessions of the pipeline. Each setting has a measured reason (docs/design/pipeline.md)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from vedette.errors import PipelineError
from vedette.pipeline.java_classes import JavaClasses

__all__ = ["JAVA_OPTIONS", "LOCAL_MASTER", "end_session", "open_session"]

LOCAL_MASTER = "local[2,4]"
"""Two cores, four attempts: with `local[2]` the first worker that dies ends the query."""
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",  # 25 ms instead of 67 ms a Python task
    "spark.python.daemon.module": "vedette.pipeline.worker_daemon",
    "spark.sql.adaptive.enabled": "false",  # plans are small and the same each time
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.scheduler.mode": "FAIR",  # windows and ingestion never starve matching
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "20",  # read four times a second, as JSON
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _STATE,  # windows: bounded memory, small commits
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Each batch is planned separately and has a row or two: code generation took longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # State that only the UI reads and that is updated at every step of every batch.
    "spark.ui.liveUpdate.period": "-1",
    "spark.ui.retainedJobs": "5",
    "spark.ui.retainedStages": "5",
    "spark.ui.retainedTasks": "20",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.broadcast.compress": "false",
}
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVM only plans and forwards bytes: the second compiler and parallel collectors cost more than they save."""


def open_session(
    master: str = LOCAL_MASTER, *, name: str = "vedette", work: Path | None = None, **more: str
) -> SparkSession:
    """Return the session of this process. Raises E6303 if Spark or Java is missing. `more` are further Spark
    settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings: Mapping[str, str] = {
        **_SETTINGS,
        **JavaClasses.of_this_environment().settings(master, JAVA_OPTIONS),
        **({"spark.local.dir": str(work)} if work is not None else {}),
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as problem:  # py4j and pyspark raise many exception types here
        text = f"Spark did not start ({problem}): is Java 17 or newer there? `vedette doctor` looks"
        raise PipelineError("E6303", text) from problem
    session.sparkContext.setLogLevel("ERROR")
    return session


_STOP_SECONDS = 10.0


def end_session(session: SparkSession) -> None:
    """Stop Spark and its JVM, also a JVM that is already dead; another session can be opened afterwards.

    `session.stop()` alone leaves the JVM running until this process ends, and after a JVM crash pyspark keeps talking
    to the dead one.
    """
    gateway = SparkContext._gateway
    with contextlib.suppress(Exception):  # the JVM may be dead: py4j and sockets raise many exception types
        session.stop()
    with contextlib.suppress(Exception):
        gateway.shutdown()  # type: ignore[union-attr]
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # the JVM exits at the end of its input
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
