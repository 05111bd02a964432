"""The checks of `vedette doctor`: one function each."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from vedette.clock import Clock
from vedette.compiled import is_compiled
from vedette.extras import install_command, missing_packages
from vedette.storage.sqlite.directory import list_databases

__all__ = ["CHECKS", "DoctorContext", "Finding", "run_checks"]

MIN_PYTHON = (3, 11)
MIN_JAVA = 17
MIN_SQLITE = (3, 24, 0)
"""The first version with INSERT … ON CONFLICT DO UPDATE."""
MIN_DESCRIPTORS = 1_024
SLOW_SYNC_MS = 20.0
SYNC_SAMPLES = 20
SYNC_BYTES = 4_096
MIN_FREE_BYTES = 1 << 30
JAVA_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str
    status: str
    """`ok`; `warn`: a feature is slow or missing; `fail`: Vedette cannot run."""
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    """The environment that the checks examine."""

    directory: Path
    clock: Clock
    java_directory: str | None = None


Check = Callable[[DoctorContext], Finding]


def run_checks(context: DoctorContext) -> Iterator[Finding]:
    """Run every check. A check that raises counts as failed."""
    for check in CHECKS:
        try:
            yield check(context)
        except (OSError, sqlite3.Error) as error:
            yield Finding(
                check=check.__name__,
                status="fail",
                found=str(error),
                advice="The check itself failed; see the message.",
            )


# Programs and libraries


def python(_context: DoctorContext) -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info >= MIN_PYTHON:
        return Finding(check="python", status="ok", found=found)
    return Finding(check="python", status="fail", found=found, advice="Install Python 3.11 or newer.")


def core(_context: DoctorContext) -> Finding:
    if is_compiled():
        return Finding(check="core", status="ok", found="compiled")
    if os.environ.get("VEDETTE_COMPILED") == "0":
        return Finding(check="core", status="ok", found="plain Python, because VEDETTE_COMPILED=0 is set")
    advice = (
        "Everything works; commits take about twice as long. "
        "`make setup` compiles the core if a C compiler is installed."
    )
    return Finding(check="core", status="warn", found="plain Python", advice=advice)


def java(context: DoctorContext) -> Finding:
    """Java is required by the Spark pipeline only."""
    directories = [context.java_directory] if context.java_directory else []
    programs = [*(os.path.join(each, "bin", "java") for each in directories), shutil.which("java")]  # noqa: PTH118
    versions = [(_java_version(program), program) for program in programs if program]
    best = max(((version, program) for version, program in versions if version), default=None)
    if best is not None and best[0] >= MIN_JAVA:
        return Finding(check="java", status="ok", found=f"Java {best[0]} ({best[1]})")
    found = "none" if best is None else f"Java {best[0]} ({best[1]})"
    advice = (
        f"Only the pipeline needs Java {MIN_JAVA} or newer. On Debian: `apt-get install "
        f"openjdk-17-jre-headless`. If Java is "
        "installed elsewhere, set JAVA_HOME."
    )
    return Finding(check="java", status="warn", found=found, advice=advice)


def _java_version(program: str) -> int | None:
    try:
        done = subprocess.run(  # noqa: S603 - runs the java of the user
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r' version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def pipeline_extra(_context: DoctorContext) -> Finding:
    return _extra("pipeline", "External collections (MongoDB, PostgreSQL) need it")


def files_extra(_context: DoctorContext) -> Finding:
    return _extra("files", "Searchable folders (wqm) need it")


def _extra(extra: str, need: str) -> Finding:
    check, missing = f"vedette[{extra}]", missing_packages(extra)
    if not missing:
        return Finding(check=check, status="ok", found="installed")
    found = f"not installed (missing: {', '.join(missing)})"
    return Finding(check=check, status="warn", found=found, advice=f"{need}: {install_command(extra)}")


def sqlite(context: DoctorContext) -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        oldest = ".".join(map(str, MIN_SQLITE))
        return Finding(
            check="sqlite",
            status="fail",
            found=version,
            advice=f"Use a Python that has SQLite {oldest} or newer.",
        )
    with tempfile.TemporaryDirectory(
        dir=_nearest_existing(context.directory), prefix=".vedette-doctor-"
    ) as folder:
        db = sqlite3.connect(Path(folder) / "probe.sqlite")
        try:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        finally:
            db.close()
    if mode == "wal":
        return Finding(check="sqlite", status="ok", found=f"{version}, write-ahead log works")
    advice = "The file system of the data directory cannot hold a write-ahead log: use a local disk."
    return Finding(
        check="sqlite", status="fail", found=f"{version}, no write-ahead log ({mode})", advice=advice
    )


def postgresql(_context: DoctorContext) -> Finding:
    """psycopg is required by stores at postgresql://… only."""
    try:
        from psycopg import pq
    except ImportError as error:
        advice = "Only data on a PostgreSQL server needs it: install psycopg[binary]."
        return Finding(check="postgresql", status="warn", found=str(error).splitlines()[0], advice=advice)
    number = pq.version()
    found = f"libpq {number // 10_000}.{number % 10_000} ({pq.__impl__})"
    return Finding(check="postgresql", status="ok", found=found)


# The machine


def directory(context: DoctorContext) -> Finding:
    path = context.directory
    if path.exists() and not path.is_dir():
        return Finding(
            check="directory", status="fail", found=f"{path} is a file", advice="Name a directory."
        )
    nearest = _nearest_existing(path)
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        advice = "Give this user read, write and search permission, or choose another directory with --data."
        return Finding(check="directory", status="fail", found=f"{nearest} is not writable", advice=advice)
    free = shutil.disk_usage(nearest).free
    names = list_databases(path) if path.is_dir() else []
    what = (
        f"databases: {', '.join(names)}"
        if names
        else "no databases yet"
        if path.is_dir()
        else "does not exist yet"
    )
    found = f"{path}: {what}; {free / (1 << 30):.1f} GiB free"
    if free < MIN_FREE_BYTES:
        return Finding(check="directory", status="warn", found=found, advice="Free some space on this disk.")
    return Finding(check="directory", status="ok", found=found)


def disk(context: DoctorContext) -> Finding:
    """Measure a write with fsync, which every commit waits for. Concurrent commits share it."""
    durations = _sync_durations_ms(_nearest_existing(context.directory), context.clock)
    middle, worst = median(durations), max(durations)
    found = f"write and fsync take {middle:.2f} ms, at most {worst:.2f} ms ({SYNC_SAMPLES} times)"
    if middle <= SLOW_SYNC_MS:
        return Finding(check="disk", status="ok", found=found)
    advice = (
        "Each commit waits this long. Use a faster local disk, write from several sessions at once, or set "
        'durability = "relaxed", which may lose the last 50 ms in a crash.'
    )
    return Finding(check="disk", status="warn", found=found, advice=advice)


def _sync_durations_ms(folder: Path, clock: Clock) -> list[float]:
    """Return the duration of each write with fsync, in milliseconds."""
    durations, block = [], bytes(SYNC_BYTES)
    with tempfile.TemporaryFile(dir=folder, prefix=".vedette-doctor-") as file:
        for _ in range(SYNC_SAMPLES):
            started = clock.monotonic()
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            durations.append((clock.monotonic() - started) * 1000)
    return durations


def descriptors(_context: DoctorContext) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"at most {soft:,} open files" if soft != resource.RLIM_INFINITY else "any number of open files"
    if soft == resource.RLIM_INFINITY or soft >= MIN_DESCRIPTORS:
        return Finding(check="descriptors", status="ok", found=found)
    room = f"`ulimit -n {MIN_DESCRIPTORS}`" if hard >= MIN_DESCRIPTORS else "the limits of this user"
    advice = (
        f"Each database and each connection needs descriptors. Raise the limit with {room} before the start."
    )
    return Finding(check="descriptors", status="warn", found=found, advice=advice)


def _nearest_existing(path: Path) -> Path:
    """Return the directory, or its nearest existing parent."""
    path = path.absolute()
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


CHECKS: tuple[Check, ...] = (
    python,
    core,
    pipeline_extra,
    files_extra,
    java,
    sqlite,
    postgresql,
    directory,
    disk,
    descriptors,
)
