"""How much of the machine's memory is used, or of the part of it that this process may have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["MemoryUsage", "memory_usage"]

_LIMIT = Path("/sys/fs/cgroup/memory.max")
_USED = Path("/sys/fs/cgroup/memory.current")


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    total_bytes: int
    used_bytes: int

    @property
    def used_share(self) -> float:
        """From 0 to 1; 0 when nothing is known."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0


def memory_usage(
    meminfo: Path = Path("/proc/meminfo"), limit: Path = _LIMIT, used: Path = _USED
) -> MemoryUsage:
    """Of the container when it has a limit, else of the machine: what cannot be had without swapping."""
    bound, current = _number(limit), _number(used)
    if bound is not None and current is not None:
        return MemoryUsage(bound, current)
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return MemoryUsage(0, 0)
    return MemoryUsage(total, total - available)


def _number(path: Path) -> int | None:
    """The number in a file; None when there is none, such as `max`."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
