"""How much memory is used: of the container when it has a limit, else of the machine."""

from __future__ import annotations

from pathlib import Path

from vedette.ingest.memory import MemoryUsage, memory_usage


def test_of_the_machine(tmp_path: Path) -> None:
    info, limit = tmp_path / "meminfo", tmp_path / "max"
    info.write_text("MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:   250 kB\n")
    limit.write_text("max\n")
    usage = memory_usage(info, limit, tmp_path / "nothing")
    assert (usage.total_bytes, usage.used_share) == (1_024_000, 0.75)


def test_of_the_container(tmp_path: Path) -> None:
    limit, used = tmp_path / "max", tmp_path / "current"
    limit.write_text("2000\n")
    used.write_text("500\n")
    assert memory_usage(tmp_path / "nothing", limit, used) == MemoryUsage(2_000, 500)


def test_where_nothing_is_known(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    assert memory_usage(nothing, nothing, nothing).used_share == 0.0
