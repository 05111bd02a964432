"""Daemon and command line are two processes with one truth."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vedette.clock import SystemClock
from vedette.handshake.config import HealthConfig, WatchFolderConfig
from vedette.handshake.failures import Failure, FailureKind
from vedette.handshake.tables import HandshakeTables

PROGRAM = ROOT / "tests" / "support" / "busy_process.py"


def start(file: Path, verb: str, count: int, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(file), verb, str(count), *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "handshake.db"
    with HandshakeTables(path) as tables:
        tables.add_watch(WatchFolderConfig(watch_id="w", path="/w", collection="c"))
    return path


def finish(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return output.split()


def test_no_error_is_lost_between_two_processes(file: Path) -> None:
    lines = [finish(each) for each in [start(file, "fail", 60), start(file, "fail", 60)]]
    assert sorted(int(line) for part in lines for line in part) == list(range(1, 121)), (
        "each saw its own count"
    )
    with HandshakeTables(file) as tables:
        assert tables.watch("w").health.total_errors == 120
        assert {p.occurrence_count for p in tables.patterns("w") if p.key.type == "file_repeated"} == {2}


def test_no_capacity_is_granted_twice(file: Path) -> None:
    workers = [start(file, "take", 120, "a"), start(file, "take", 120, "b")]
    granted = [sum(int(line) for line in finish(each)) for each in workers]
    with HandshakeTables(file) as tables:
        held = tables.system_state.capacity().tasks_by_watch
    assert held == {"a": 120, "b": 120}
    assert granted == [120, 120]


def test_reset_takes_effect_in_a_running_daemon(file: Path) -> None:
    daemon = start(file, "wait", 2)
    assert daemon.stdin is not None
    assert daemon.stdout is not None

    def errors_seen_by_daemon() -> int:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        daemon.stdin.write("\n")
        daemon.stdin.flush()
        return int(daemon.stdout.readline())

    with HandshakeTables(file, health=HealthConfig()) as command_line:
        for number in range(4):
            command_line.record_error(
                "w",
                Failure(
                    path=f"/w/{number}",
                    error_type="E",
                    message="x",
                    at=SystemClock().now(),
                    kind=FailureKind.DATA,
                ),
            )
        assert errors_seen_by_daemon() == 4
        command_line.reset_errors("w")
        assert errors_seen_by_daemon() == 0
    finish(daemon)


def test_concurrent_creation_yields_one_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "handshake.db"
    workers = [start(path, "nothing", 0) for _ in range(4)]
    for worker in workers:
        finish(worker)
    with HandshakeTables(path) as tables:
        assert tables.watches() == []
