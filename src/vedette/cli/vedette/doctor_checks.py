"""What `vedette doctor` looks at: one function per check, each tells what it found and what to do about it."""

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

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
OLDEST_SQLITE = (3, 24, 0)
"""The first that can insert or else update."""
FEWEST_DESCRIPTORS = 1_024
SLOW_SYNC_MS = 20.0
SYNC_SAMPLES = 20
SYNC_BYTES = 4_096
FEWEST_FREE_BYTES = 1 << 30
JAVA_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str
    status: str
    """`ok`; `warn`: something will be slow or missing; `fail`: Vedette cannot work like this."""
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    """What the checks look at."""

    directory: Path
    clock: Clock
    java_home: str | None = None


Check = Callable[[DoctorContext], Finding]


def run_checks(surroundings: DoctorContext) -> Iterator[Finding]:
    """Every check in turn; one that breaks is a failed check."""
    for check in CHECKS:
        try:
            yield check(surroundings)
        except (OSError, sqlite3.Error) as error:
            yield Finding(
                check=check.__name__, status="fail", found=str(error), advice="See the message on the left."
            )


# --- the programs -----------------------------------------------------------------------------------------------


def python(_surroundings: DoctorContext) -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info >= OLDEST_PYTHON:
        return Finding(check="python", status="ok", found=found)
    return Finding(check="python", status="fail", found=found, advice="Install Python 3.11 or newer.")


def core(_surroundings: DoctorContext) -> Finding:
    if is_compiled():
        return Finding(check="core", status="ok", found="compiled")
    if os.environ.get("VEDETTE_COMPILED") == "0":
        return Finding(check="core", status="ok", found="plain Python, as VEDETTE_COMPILED=0 asks")
    advice = "Everything works, commits take about twice as long; `make setup` compiles it where there is a C compiler."
    return Finding(check="core", status="warn", found="plain Python", advice=advice)


def java(surroundings: DoctorContext) -> Finding:
    """Only the Spark pipeline needs it."""
    homes = [surroundings.java_home] if surroundings.java_home else []
    programs = [*(os.path.join(home, "bin", "java") for home in homes), shutil.which("java")]  # noqa: PTH118
    versions = [(_java_version(program), program) for program in programs if program]
    best = max(((version, program) for version, program in versions if version), default=None)
    if best is not None and best[0] >= OLDEST_JAVA:
        return Finding(check="java", status="ok", found=f"Java {best[0]} ({best[1]})")
    found = "none" if best is None else f"Java {best[0]} ({best[1]})"
    advice = (
        f"Only the pipeline needs it: `make setup` installs Java {OLDEST_JAVA} where it may, on Debian "
        "`apt-get install openjdk-17-jre-headless` does; if it is elsewhere, set JAVA_HOME."
    )
    return Finding(check="java", status="warn", found=found, advice=advice)


def _java_version(program: str) -> int | None:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own java
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r' version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def pipeline_extra(_surroundings: DoctorContext) -> Finding:
    return _extra("pipeline", "External collections (MongoDB, PostgreSQL) need it")


def files_extra(_surroundings: DoctorContext) -> Finding:
    return _extra("files", "Searchable folders (wqm) need it")


def _extra(extra: str, need: str) -> Finding:
    check, missing = f"vedette[{extra}]", missing_packages(extra)
    if not missing:
        return Finding(check=check, status="ok", found="installed")
    found = f"not installed (missing: {', '.join(missing)})"
    return Finding(check=check, status="warn", found=found, advice=f"{need}: {install_command(extra)}")


def sqlite(surroundings: DoctorContext) -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        return Finding(
            check="sqlite",
            status="fail",
            found=version,
            advice=f"Use a Python that has SQLite {oldest} or newer.",
        )
    with tempfile.TemporaryDirectory(
        dir=_writable(surroundings.directory), prefix=".vedette-doctor-"
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


def postgresql(_surroundings: DoctorContext) -> Finding:
    """Only homes at postgresql://… need it."""
    try:
        from psycopg import pq
    except ImportError as error:
        advice = "Only data on a PostgreSQL server needs it: install psycopg[binary]."
        return Finding(check="postgresql", status="warn", found=str(error).splitlines()[0], advice=advice)
    number = pq.version()
    found = f"libpq {number // 10_000}.{number % 10_000} ({pq.__impl__})"
    return Finding(check="postgresql", status="ok", found=found)


# --- the machine ------------------------------------------------------------------------------------------------


def directory(surroundings: DoctorContext) -> Finding:
    place = surroundings.directory
    if place.exists() and not place.is_dir():
        return Finding(
            check="directory", status="fail", found=f"{place} is a file", advice="Name a directory."
        )
    nearest = _writable(place)
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        advice = "Give this user the right to read, write and search it, or choose another with --data."
        return Finding(check="directory", status="fail", found=f"{nearest} is not writable", advice=advice)
    free = shutil.disk_usage(nearest).free
    names = list_databases(place) if place.is_dir() else []
    what = (
        f"databases: {', '.join(names)}"
        if names
        else "no databases yet"
        if place.is_dir()
        else "not there yet"
    )
    found = f"{place}: {what}; {free / (1 << 30):.1f} GiB free"
    if free < FEWEST_FREE_BYTES:
        return Finding(check="directory", status="warn", found=found, advice="Free some space on this disk.")
    return Finding(check="directory", status="ok", found=found)


def disk(surroundings: DoctorContext) -> Finding:
    """Every commit waits for a write and an fsync; commits that come together share them."""
    spans = _sync_spans(_writable(surroundings.directory), surroundings.clock)
    middle, worst = median(spans), max(spans)
    found = f"write and fsync take {middle:.2f} ms, at most {worst:.2f} ms ({SYNC_SAMPLES} times)"
    if middle <= SLOW_SYNC_MS:
        return Finding(check="disk", status="ok", found=found)
    advice = (
        "Each commit waits so long: put the data on a faster local disk, write from several sessions at once, "
        'or accept losing the last 50 ms in a crash with durability = "relaxed".'
    )
    return Finding(check="disk", status="warn", found=found, advice=advice)


def _sync_spans(folder: Path, clock: Clock) -> list[float]:
    """Milliseconds per write and fsync."""
    spans, block = [], bytes(SYNC_BYTES)
    with tempfile.TemporaryFile(dir=folder, prefix=".vedette-doctor-") as file:
        for _ in range(SYNC_SAMPLES):
            started = clock.monotonic()
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            spans.append((clock.monotonic() - started) * 1000)
    return spans


def descriptors(_surroundings: DoctorContext) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"at most {soft:,} open files" if soft != resource.RLIM_INFINITY else "any number of open files"
    if soft == resource.RLIM_INFINITY or soft >= FEWEST_DESCRIPTORS:
        return Finding(check="descriptors", status="ok", found=found)
    room = f"`ulimit -n {FEWEST_DESCRIPTORS}`" if hard >= FEWEST_DESCRIPTORS else "the limits of this user"
    advice = f"Each database and each connection needs some: raise it with {room} before the start."
    return Finding(check="descriptors", status="warn", found=found, advice=advice)


def _writable(place: Path) -> Path:
    """The directory, or the nearest one above it that is there."""
    place = place.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    return place


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
