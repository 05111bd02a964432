"""Resident memory of this process and its children, as a share of the available memory.

The measure is resident memory divided by total memory: what a daemon can reduce by doing less. Memory of other
processes does not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MemoryUsage", "memory_usage"]

_LIMIT = Path("/sys/fs/cgroup/memory.max")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    total_bytes: int
    """Total memory of the machine or of the container; 0 if unknown."""
    used_bytes: int
    """Resident bytes of this process and its children, which belong to Spark."""

    @property
    def used_share(self) -> float:
        """From 0 to 1; 0 if unknown."""
        return min(1.0, self.used_bytes / self.total_bytes) if self.total_bytes else 0.0


def memory_usage(process: int | None = None, proc: Path = Path("/proc"), limit: Path = _LIMIT) -> MemoryUsage:
    """Memory of a process and its children; by default this one."""
    family = _process_tree(proc, os.getpid() if process is None else process)
    return MemoryUsage(_total(proc / "meminfo", limit), sum(_resident_bytes(proc, each) for each in family))


def _total(meminfo: Path, limit: Path) -> int:
    bounds = []
    with suppress(OSError, KeyError, ValueError):
        lines = meminfo.read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        bounds.append(int(fields["MemTotal"].split()[0]) * 1024)
    with suppress(OSError, ValueError):  # `max`: no limit
        bounds.append(int(limit.read_text(encoding="ascii")))
    return min(bounds, default=0)


def _process_tree(proc: Path, process: int) -> Iterator[int]:
    yield process
    try:
        lists = [path.read_text(encoding="ascii") for path in (proc / str(process)).glob("task/*/children")]
    except OSError:
        return  # it ended meanwhile
    for child in {int(word) for text in lists for word in text.split()}:
        yield from _process_tree(proc, child)


def _resident_bytes(proc: Path, process: int) -> int:
    try:
        return int((proc / str(process) / "statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
