"""Memory of a process tree, from files as in /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vedette.search.folders.process_memory import MemoryUsage, memory_usage

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Process 7 has 100 pages, its child 8 has 50, and the child of 8 has 25. Process 9 is unrelated."""
    (tmp_path / "meminfo").write_text("MemTotal:  1000000 kB\nMemFree:  10 kB\nMemAvailable:   250 kB\n")
    for process, pages, children in ((7, 100, "8 "), (8, 50, "10"), (10, 25, ""), (9, 1_000_000, "")):
        task = tmp_path / f"{process}" / "task" / f"{process}"
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        (tmp_path / f"{process}" / "statm").write_text(f"9999 {pages} 3 4 5 6 7\n")
    return tmp_path


def test_total_is_the_memory_of_the_machine(proc: Path) -> None:
    (proc / "max").write_text("max\n")
    assert memory_usage(7, proc, proc / "max") == MemoryUsage(1_024_000_000, 175 * PAGE)


def test_total_is_the_limit_of_the_container(proc: Path) -> None:
    (proc / "max").write_text(f"{700 * PAGE}\n")
    assert memory_usage(7, proc, proc / "max").used_share == 0.25
    (proc / "max").write_text(f"{10 * PAGE}\n")
    assert memory_usage(7, proc, proc / "max").used_share == 1.0


def test_unknown_memory_is_zero(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    assert memory_usage(7, nothing, nothing) == MemoryUsage(0, 0)
    assert MemoryUsage(0, 0).used_share == 0.0


def test_memory_of_this_process() -> None:
    alone = memory_usage()
    assert 0 < alone.used_share <= 1
    code = "import sys; held = bytearray(60_000_000); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert memory_usage().used_bytes - alone.used_bytes > 50_000_000
        child.communicate()
