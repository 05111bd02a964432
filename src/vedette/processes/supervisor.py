"""The process that watches over the others: a child that dies is started again, the others go on.

It uses the standard library only.

A child that fails before it ever was ready has said why, and everything ends with it. Later, and when it was killed or
asked to stop, it is started again: at once the first time, then after waits that double, until it has been up for a
while. Children hold the other end of a pipe as their standard input; when this process is gone, they see its end and
stop.
"""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

from vedette.clock import Clock
from vedette.processes.signals import StopSignal

__all__ = ["Child", "Restarts", "Supervisor"]

log = logging.getLogger(__name__)
STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_WANTED_SECONDS = 1.0


@dataclass(slots=True)
class Restarts:
    """When to start a child again; no I/O."""

    first_seconds: float = 0.1
    cap_seconds: float = 10.0
    steady_seconds: float = 30.0
    """Up for so long, it counts as well again."""
    in_a_row: int = 0

    def wait(self, up_seconds: float) -> float:
        """The wait before the next start, after it was up for so long."""
        if up_seconds >= self.steady_seconds:
            self.in_a_row = 0
        self.in_a_row += 1
        return min(self.cap_seconds, self.first_seconds * 2.0 ** (self.in_a_row - 1))


@dataclass(slots=True)
class Child:
    name: str
    command: Sequence[str]
    is_ready: Callable[[int], bool]
    """Whether the process of this id is at work."""
    vital: bool = True
    """Whether everything ends when it cannot start; another is tried again and again."""
    leads: bool = False
    """Whether everything ends when it stops in good order; another was only asked to make room for its next."""
    wanted: Callable[[], bool] = lambda: True
    """Asked before every start, now and then until it says yes."""
    restarts: Restarts = field(default_factory=Restarts)
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    due_at: float | None = 0.0
    """When to start it; None while it runs."""
    was_ready: bool = False


class Supervisor:
    def __init__(self, children: Sequence[Child], *, clock: Clock) -> None:
        self._children = list(children)
        self._clock = clock
        self._renew = False

    def run(self, stop: StopSignal) -> int:
        """Until a signal or a child that cannot start; the exit code."""
        before = signal.signal(signal.SIGHUP, self._asked_to_renew)
        try:
            while True:
                code = self._look()
                if code is not None:
                    return code
                if self._renew:
                    self._renew = False
                    self._roll(stop)
                if stop.wait(_LOOK_SECONDS):
                    return 0
        finally:
            signal.signal(signal.SIGHUP, before)
            self._stop_all()

    def _asked_to_renew(self, _number: int, _frame: FrameType | None) -> None:
        self._renew = True

    def _look(self) -> int | None:
        now = self._clock.monotonic()
        for child in self._children:
            if child.due_at is not None and now >= child.due_at and self._others_ready(child):
                self._start_if_wanted(child, now)
            elif child.process is not None and child.due_at is None:
                ended = self._watch(child, now)
                if ended is not None:
                    return ended
        return None

    def _others_ready(self, child: Child) -> bool:
        """The first child is the engine; the others wait for it."""
        return child is self._children[0] or self._children[0].was_ready

    def _start_if_wanted(self, child: Child, now: float) -> None:
        if child.wanted():
            self._start(child)
        else:
            child.due_at = now + _WANTED_SECONDS

    def _start(self, child: Child) -> None:
        child.process = subprocess.Popen(child.command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
        child.started_at, child.due_at = self._clock.monotonic(), None

    def _watch(self, child: Child, now: float) -> int | None:
        process = child.process
        assert process is not None
        code = process.poll()
        if code is None:
            child.was_ready = child.was_ready or child.is_ready(process.pid)
            return None
        if child.leads and code == 0:
            return 0
        if child.vital and not child.was_ready and code > 0:
            return 1
        self._end(child)  # its end of the pipe
        wait = child.restarts.wait(now - child.started_at)
        log.warning(
            "The %s ended (%s); it restarts in %.1f s",
            child.name,
            _ending(code),
            wait,
            extra={"action": "child.ended", "child": child.name, "child_pid": process.pid},
        )
        child.due_at = now + wait
        return None

    def _roll(self, stop: StopSignal) -> None:
        """One worker after the other: end it, start it, wait until it is ready. What is not vital is none."""
        for child in self._children[1:]:
            if child.process is None or child.due_at is not None or not child.vital:
                continue
            self._end(child)
            self._start(child)
            assert child.process is not None
            while child.process.poll() is None and not child.is_ready(child.process.pid):
                if stop.wait(_LOOK_SECONDS):
                    return

    def _stop_all(self) -> None:
        for child in reversed(self._children):
            self._end(child)

    def _end(self, child: Child) -> None:
        process = child.process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _ending(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
