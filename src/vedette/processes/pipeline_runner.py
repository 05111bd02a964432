"""The pipeline as a supervised child of `vedette serve`: when it is started, and when it counts as ready.

Without sources the pipeline is not started, because Spark takes memory. Without Java a warning is logged, and
everything else works.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from vedette.extras import missing_extra_note
from vedette.processes.supervisor import ChildSpec, RestartDelays

if TYPE_CHECKING:
    from vedette.processes.logging_setup import LogOptions

__all__ = ["LOCK_FILE", "LOG_FILE", "has_sources", "pipeline_spec", "redirect_output_to_log"]

log = logging.getLogger(__name__)
LOG_FILE = "pipeline.log"
"""The output of the pipeline and of Spark."""
_MAX_LOG_BYTES = 16 * 1024 * 1024
LOCK_FILE = "pipeline.lock"
"""Locked by the running pipeline of a data directory, so that only one runs at a time."""
_STATUS_FILE = "pipeline.json"
_JOURNAL_FILE = "collections.db"
_NO_JAVA = (
    "External collections are not read: no Java was found. Install Java 17 or newer, or set JAVA_HOME. "
    "Everything else works."
)


def pipeline_spec(
    data: str, directory: Path, print_line: Callable[[str], object], logs: LogOptions
) -> ChildSpec:
    """Return the child for a supervisor. It is started when there is a source. `print_line` prints progress."""
    command = [sys.executable, "-m", "vedette", "pipeline", "--data", data, "--role", "child"]
    command += logs.arguments()

    def is_ready(pid: int) -> bool:
        ready = _is_running(directory, pid)
        if ready:
            print_line("The pipeline is running.")
        return ready

    return ChildSpec(
        name=f"pipeline (see {Path(data) / LOG_FILE})",
        command=command,
        is_ready=is_ready,
        restart_delays=RestartDelays(initial_seconds=1.0, max_seconds=30.0, stable_after_seconds=60.0),
        is_needed=PipelineNeeded(directory),
        required=False,
    )


class PipelineNeeded:
    """True when the pipeline should be started. Logs once what is missing for that."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_reported = False

    def __call__(self) -> bool:
        if not has_sources(self._directory) or _is_locked_by_another(self._directory):
            return False
        problem = missing_extra_note("pipeline")
        action = "pipeline.extra_missing" if problem else "pipeline.java_missing"
        problem = problem or ("" if _has_java() else _NO_JAVA)
        if problem and not self._is_reported:
            self._is_reported = True
            log.warning("%s", problem, extra={"action": action})
        return not problem


def redirect_output_to_log(directory: Path) -> TextIO:
    """Send all output of this process, also that of Java, to the log file; return the previous standard error.

    A log file above `_MAX_LOG_BYTES` is renamed first.
    """
    path = directory / LOG_FILE
    if path.is_file() and path.stat().st_size > _MAX_LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    before = os.fdopen(os.dup(sys.stderr.fileno()), "w", errors="backslashreplace")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
    return before


def has_sources(directory: Path) -> bool:
    """Return True if the data directory, or the store that its settings name, may have sources."""
    from vedette.errors import SettingsError
    from vedette.settings import load_settings

    try:
        if load_settings(directory, os.environ).pipeline_store:
            return True
    except SettingsError:
        return False  # the engine reports the error
    path = directory / _JOURNAL_FILE
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("SELECT 1 FROM sources LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return False  # the file is being created


def _has_java() -> bool:
    return shutil.which("java") is not None or bool(os.environ.get("JAVA_HOME"))


def _is_locked_by_another(directory: Path) -> bool:
    """Return True if another pipeline holds the lock, for example one that was started by hand."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_running(directory: Path, pid: int) -> bool:
    try:
        status = json.loads((directory / _STATUS_FILE).read_text())
    except (OSError, ValueError):
        return False
    return bool(status.get("pid") == pid and status.get("state") == "running")
