"""Resident memory of this process and its children, as a share of the total memory.

Memory of other processes does not count, because the daemon cannot reduce it by doing less work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MemoryUsage", "memory_usage"]

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    total_bytes: int
    """Memory of the machine, or the limit of the container if it is smaller; 0 if unknown."""
    used_bytes: int
    """Resident memory of the process and its children, for example the JVM of Spark."""

    @property
    def used_share(self) -> float:
        """Used memory divided by total memory, from 0 to 1; 0 if the total is unknown."""
        return min(1.0, self.used_bytes / self.total_bytes) if self.total_bytes else 0.0


def memory_usage(
    process: int | None = None, proc: Path = Path("/proc"), limit: Path = _CGROUP_LIMIT
) -> MemoryUsage:
    """Return the memory of a process and its children; by default of this process."""
    tree = _process_tree(proc, os.getpid() if process is None else process)
    return MemoryUsage(_total_bytes(proc / "meminfo", limit), sum(_resident_bytes(proc, pid) for pid in tree))


def _total_bytes(meminfo: Path, limit: Path) -> int:
    bounds = []
    with suppress(OSError, KeyError, ValueError):
        lines = meminfo.read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        bounds.append(int(fields["MemTotal"].split()[0]) * 1024)
    with suppress(OSError, ValueError):  # the file contains `max` if there is no limit
        bounds.append(int(limit.read_text(encoding="ascii")))
    return min(bounds, default=0)


def _process_tree(proc: Path, process: int) -> Iterator[int]:
    yield process
    try:
        lists = [path.read_text(encoding="ascii") for path in (proc / str(process)).glob("task/*/children")]
    except OSError:
        return  # the process has exited
    for child in {int(word) for text in lists for word in text.split()}:
        yield from _process_tree(proc, child)


def _resident_bytes(proc: Path, process: int) -> int:
    try:
        return int((proc / str(process) / "statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
