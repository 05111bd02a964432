"""The pipeline as a child of `vedette serve`: when it is wanted, and how it is known to be at work.

Nobody who has no sources pays for Spark; nobody who has no Java is kept from the rest.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from vedette.processes.supervisor import Child, Restarts

__all__ = ["LOCK_FILE", "LOG_FILE", "has_sources", "pipeline_child", "speak_into_log"]

LOG_FILE = "pipeline.log"
"""What it and Spark have to say."""
_MOST_LOG_BYTES = 16 * 1024 * 1024
LOCK_FILE = "pipeline.lock"
"""Held by the pipeline of a data directory: there is one at a time."""
_STATUS_FILE = "pipeline.json"
_JOURNAL_FILE = "collections.db"
_NO_JAVA = (
    "There are sources, but no Java: their collections are not watched. Install Java 17 or newer, or set JAVA_HOME; "
    "`vedette doctor` looks. The rest works."
)


def pipeline_child(data: str, directory: Path, say: Callable[[str], None]) -> Child:
    """For a supervisor: it is started when there is a source to read."""
    command = [sys.executable, "-m", "vedette", "pipeline", "--data", data, "--role", "child"]

    def is_ready(pid: int) -> bool:
        ready = _is_at_work(directory, pid)
        if ready:
            say("The pipeline is at work.")
        return ready

    return Child(
        f"pipeline (see {Path(data) / LOG_FILE})",
        command,
        is_ready,
        restarts=Restarts(first_seconds=1.0, cap_seconds=30.0, steady_seconds=60.0),
        wanted=_Wanted(directory, say),
        vital=False,
    )


class _Wanted:
    """Whether the pipeline is to be started; says once what is missing."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self._directory, self._say = directory, say
        self._told = False

    def __call__(self) -> bool:
        if not has_sources(self._directory) or _runs_elsewhere(self._directory):
            return False
        if _has_java():
            return True
        if not self._told:
            self._told = True
            self._say(_NO_JAVA)
        return False


def speak_into_log(directory: Path) -> None:
    """In the child: from now on all output, also that of Java, goes to the log; a long one is put aside first."""
    path = directory / LOG_FILE
    if path.is_file() and path.stat().st_size > _MOST_LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)


def has_sources(directory: Path) -> bool:
    """Whether the data directory, or the store that its settings name, may have any."""
    from vedette.errors import SettingsError
    from vedette.settings import load_settings

    try:
        if load_settings(directory, os.environ).pipeline_store:
            return True
    except SettingsError:
        return False  # the engine says what is wrong
    path = directory / _JOURNAL_FILE
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("SELECT 1 FROM sources LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return False  # it is being made just now


def _has_java() -> bool:
    return shutil.which("java") is not None or bool(os.environ.get("JAVA_HOME"))


def _runs_elsewhere(directory: Path) -> bool:
    """Whether somebody started one by hand."""
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


def _is_at_work(directory: Path, pid: int) -> bool:
    try:
        status = json.loads((directory / _STATUS_FILE).read_text())
    except (OSError, ValueError):
        return False
    return bool(status.get("pid") == pid and status.get("state") == "running")
