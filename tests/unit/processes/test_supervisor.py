"""Which children the supervisor restarts, and after which delay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vedette.clock import SystemClock
from vedette.processes.signals import StopSignal
from vedette.processes.supervisor import (
    ChildSpec,
    ExitAction,
    RestartBackoff,
    RestartDelays,
    Supervisor,
    decide_exit,
)

WAITS_FOR_END_OF_INPUT = "import sys; sys.stdin.read()"
MAX_POLLS = 300


class StopWhenFileExists(StopSignal):
    """Requests a stop when a file exists."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._polls = path, 0

    def wait(self, seconds: float | None) -> bool:
        self._polls += 1
        assert self._polls < MAX_POLLS, "the worker was not restarted"
        return super().wait(seconds) or self._path.exists()


@pytest.mark.parametrize(
    ("end", "again"),
    [
        ("sys.exit(0)", True),
        ("os.kill(os.getpid(), signal.SIGKILL)", True),
        ("os.kill(os.getpid(), signal.SIGTERM)", True),
        ("sys.exit(3)", False),
    ],
)
def test_worker_that_exits_before_it_is_ready(tmp_path: Path, end: str, again: bool) -> None:
    """A worker that was stopped or killed is restarted. A worker that fails has reported why it cannot start."""
    once, twice = tmp_path / "once", tmp_path / "twice"
    script = f"""
import os, pathlib, signal, sys
once, twice = pathlib.Path({str(once)!r}), pathlib.Path({str(twice)!r})
if once.exists():
    twice.touch()
    sys.stdin.read()
once.touch()
{end}
"""
    engine = ChildSpec(
        name="engine",
        command=[sys.executable, "-c", WAITS_FOR_END_OF_INPUT],
        is_ready=lambda _: True,
        primary=True,
    )
    worker = ChildSpec(name="worker", command=[sys.executable, "-c", script], is_ready=lambda _: False)
    with StopWhenFileExists(twice) as stop:
        code = Supervisor([engine, worker], clock=SystemClock()).run(stop)
    assert (code, twice.exists()) == ((0, True) if again else (1, False))


@pytest.mark.parametrize(
    ("required", "primary", "exit_code", "was_ready", "action"),
    [
        (True, True, 0, True, ExitAction.STOP),
        (True, True, 0, False, ExitAction.STOP),
        (True, True, 1, False, ExitAction.FAIL),
        (True, True, 1, True, ExitAction.RESTART),
        (True, True, -9, False, ExitAction.RESTART),
        (True, False, 0, True, ExitAction.RESTART),
        (True, False, 2, False, ExitAction.FAIL),
        (False, False, 2, False, ExitAction.RESTART),
        (False, False, 0, True, ExitAction.RESTART),
    ],
)
def test_decide_exit(
    required: bool, primary: bool, exit_code: int, was_ready: bool, action: ExitAction
) -> None:
    spec = ChildSpec(name="x", command=[], is_ready=lambda _: True, required=required, primary=primary)
    assert decide_exit(spec, exit_code, was_ready=was_ready) is action


def test_restart_delay_doubles_up_to_a_maximum_and_starts_again_after_a_stable_run() -> None:
    backoff = RestartBackoff(RestartDelays(initial_seconds=1.0, max_seconds=5.0, stable_after_seconds=30.0))
    assert [backoff.next_delay(0.1) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.next_delay(30.0) == 1.0
