"""Which children are started again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vedette.clock import SystemClock
from vedette.processes.signals import StopSignal
from vedette.processes.supervisor import ChildSpec, Supervisor

STAYS = "import sys; sys.stdin.read()"
LOOKS = 300


class Patience(StopSignal):
    """Asks to stop when a file is there."""

    def __init__(self, wanted: Path) -> None:
        super().__init__()
        self._wanted, self._looks = wanted, 0

    def wait(self, seconds: float | None) -> bool:
        self._looks += 1
        assert self._looks < LOOKS, "it was not started again"
        return super().wait(seconds) or self._wanted.exists()


@pytest.mark.parametrize(
    ("end", "again"),
    [
        ("sys.exit(0)", True),
        ("os.kill(os.getpid(), signal.SIGKILL)", True),
        ("os.kill(os.getpid(), signal.SIGTERM)", True),
        ("sys.exit(3)", False),
    ],
)
def test_a_worker_that_ended_before_it_was_seen_at_work(tmp_path: Path, end: str, again: bool) -> None:
    """Asked to stop, or killed, it may have been at work already. One that fails has said why it cannot start."""
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
    engine = ChildSpec("engine", [sys.executable, "-c", STAYS], lambda _: True, primary=True)
    worker = ChildSpec("worker", [sys.executable, "-c", script], lambda _: False)
    with Patience(twice) as stop:
        code = Supervisor([engine, worker], clock=SystemClock()).run(stop)
    assert (code, twice.exists()) == ((0, True) if again else (1, False))
