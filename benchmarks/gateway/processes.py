"""CPU time and memory of processes, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_seconds", "resident_bytes"]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children. It does not depend on other load of the machine."""
    total = 0.0
    for each in [pid, *_children(pid)]:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *_children(child)]
    return found
