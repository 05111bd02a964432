"""scripts/under-load: the rounds, the exit code, and the end of the busy processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "under-load"
INHERITED = {name: value for name, value in os.environ.items() if name not in {"ROUNDS", "BUSY_PROCESSES"}}
REPORT = """
echo run >>runs
for pid in $(cat /proc/$PPID/task/$PPID/children); do [ $pid = $$ ] || echo $pid; done >busy
"""
"""Record the run and the other children of the script."""


def under_load(folder: Path, command: str, **environment: str) -> int:
    """Run `command` under load; return the exit code of the script."""
    ran = subprocess.run(
        [SCRIPT, "sh", "-c", REPORT + command],
        cwd=folder,
        env={**INHERITED, "BUSY_PROCESSES": "2", **environment},
        check=False,
        timeout=100,
    )
    return ran.returncode


def busy_processes(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "busy").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_ended(pids: list[int]) -> None:
    """A killed process may still be listed for a moment."""
    deadline = time.monotonic() + 60
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.01)


@pytest.mark.parametrize(("rounds", "runs"), [({}, 3), ({"ROUNDS": "2"}, 2)])
def test_command_runs_in_rounds(tmp_path: Path, rounds: dict[str, str], runs: int) -> None:
    assert under_load(tmp_path, "true", **rounds) == 0
    assert (tmp_path / "runs").read_text().split() == ["run"] * runs
    assert len(busy_processes(tmp_path)) == 2
    wait_until_ended(busy_processes(tmp_path))


def test_stops_at_the_first_failing_run(tmp_path: Path) -> None:
    assert under_load(tmp_path, "exit 7") == 7
    assert (tmp_path / "runs").read_text().split() == ["run"]
    wait_until_ended(busy_processes(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_busy_process_survives_the_script(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [SCRIPT, "sh", "-c", REPORT + "echo ready; read line"],
        cwd=tmp_path,
        env={**INHERITED, "BUSY_PROCESSES": "2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout is not None
        while (line := script.stdout.readline()) != "ready\n":
            assert line
        script.send_signal(number)
        script.communicate()  # closes standard input, which ends the command
    busy = busy_processes(tmp_path)
    assert len(busy) == 2
    while any(map(is_running, busy)):  # the time limit of the test bounds this
        os.sched_yield()
