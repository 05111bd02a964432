"""Spark sessions of the pipeline: settings, each with its reason, and opening and stopping a session.

Theory of operation. A process has at most one session, and the session has one JVM, which pyspark starts. Three groups
of settings apply:

    REQUIRED_CONF   the pipeline does not work, or works much slower, without them; set on every master
    LOCAL_CONF      for a JVM that runs the whole pipeline on this machine; set on a local master only, so that an
                    operator's configuration of a cluster stays in force
    NO_UI_CONF      for the pipeline that `vedette serve` supervises and for the background session of the folder
                    daemon; a session that a user starts by hand has the Spark UI

docs/design/pipeline.md has the measurements.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from vedette.errors import PipelineError

__all__ = ["DRIVER_JAVA_OPTIONS", "LOCAL_MASTER", "SparkSession", "open_session", "stop_session_and_jvm"]

LOCAL_MASTER = "local[2,4]"
"""Two cores, four attempts: with `local[2]` the first worker that dies ends the query."""

REQUIRED_CONF: Mapping[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",  # a Python task takes 25 ms; with TCP 67 ms
    "spark.python.daemon.module": "vedette.pipeline.worker_daemon",  # workers fork with all modules loaded
    # A task matches and sends one Arrow batch while the next one is read.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.scheduler.mode": "FAIR",  # each query has its own pool (`query_start`), so windows do not delay changes
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "20",  # read twice a second, some kB of JSON each
    "spark.sql.session.timeZone": "UTC",
    # Windows: bounded memory and small commits, few state stores, no batch unless the offset moves.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
DRIVER_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVM only plans batches and forwards bytes: the second compiler and parallel collectors cost more than they save
(26 instead of 44 s of processor time until the first event)."""
LOCAL_CONF: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.ui.showConsoleProgress": "false",
}
NO_UI_CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.liveUpdate.period": "-1",  # the state behind the UI takes a tenth of the JVM's time
}
_ARCHIVE_FILE = "java-classes.jsa"
_AUTO_ARCHIVE_JAVA = 19
"""The first Java that maintains its class archive by itself (-XX:+AutoCreateSharedArchive)."""
_STOP_SECONDS = 10.0
"""Seconds that a JVM has to exit before it is killed."""


def open_session(
    master: str = LOCAL_MASTER,
    *,
    name: str = "vedette",
    local_dir: Path | None = None,
    ui: bool = True,
    show_progress: bool = False,
    extra_conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session of this process. Raise PipelineError E6303 if Spark or Java is missing.

    `local_dir` is for Spark's temporary files, and keeps the JVM's class archive between starts. `show_progress`
    prints Spark's progress bar on the terminal. `extra_conf` overrides all other settings.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **REQUIRED_CONF,
        **(_local_conf(local_dir) if master.startswith("local") else {}),
        **({} if ui else NO_UI_CONF),
        **({"spark.ui.showConsoleProgress": "true"} if show_progress else {}),
        **({"spark.local.dir": str(local_dir)} if local_dir is not None else {}),
        **(extra_conf or {}),
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as problem:  # py4j and pyspark raise many exception types here
        text = f"Spark did not start ({problem}). It needs Java 17 or newer; `vedette doctor` checks for it"
        raise PipelineError("E6303", text) from problem
    session.sparkContext.setLogLevel("ERROR")
    return session


def _local_conf(local_dir: Path | None) -> Mapping[str, str]:
    options = DRIVER_JAVA_OPTIONS
    if local_dir is not None and (java_version() or 0) >= _AUTO_ARCHIVE_JAVA:
        options += f" -XX:+AutoCreateSharedArchive -XX:SharedArchiveFile={local_dir / _ARCHIVE_FILE}"
    return {**LOCAL_CONF, "spark.driver.extraJavaOptions": options}


def java_version() -> int | None:
    """Return the major version of the Java that pyspark starts; None if it cannot be determined."""
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java")
    if java is None:
        return None
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else None


def stop_session_and_jvm(session: SparkSession) -> None:
    """Stop Spark and its JVM, also a JVM that has crashed. Another session can be opened afterwards.

    `session.stop()` alone leaves the JVM running until this process ends. After a JVM crash, pyspark 4.3 keeps its
    references to the dead JVM in private class attributes; only resetting them lets a new session start.
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
