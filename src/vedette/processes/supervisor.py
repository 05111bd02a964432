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

__all__ = ["ChildSpec", "RestartBackoff", "Supervisor"]

log = logging.getLogger(__name__)
STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.1
NEED_CHECK_SECONDS = 1.0


@dataclass(slots=True)
class RestartBackoff:
    """When to start a child again; no I/O."""

    initial_delay_seconds: float = 0.1
    max_delay_seconds: float = 10.0
    stable_after_seconds: float = 30.0
    """Up for so long, it counts as well again."""
    consecutive_restarts: int = 0

    def next_delay(self, up_seconds: float) -> float:
        """The wait before the next start, after it was up for so long."""
        if up_seconds >= self.stable_after_seconds:
            self.consecutive_restarts = 0
        self.consecutive_restarts += 1
        return min(
            self.max_delay_seconds, self.initial_delay_seconds * 2.0 ** (self.consecutive_restarts - 1)
        )


@dataclass(slots=True)
class ChildSpec:
    name: str
    command: Sequence[str]
    is_ready: Callable[[int], bool]
    """Whether the process of this id is at work."""
    required: bool = True
    """Whether everything ends when it cannot start; another is tried again and again."""
    primary: bool = False
    """Whether everything ends when it stops in good order; another was only asked to make room for its next."""
    is_needed: Callable[[], bool] = lambda: True
    """Asked before every start, now and then until it says yes."""
    restarts: RestartBackoff = field(default_factory=RestartBackoff)
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float | None = 0.0
    """When to start it; None while it runs."""
    was_ready: bool = False


class Supervisor:
    def __init__(self, children: Sequence[ChildSpec], *, clock: Clock) -> None:
        self._children = list(children)
        self._clock = clock
        self._restart_requested = False

    def run(self, stop: StopSignal) -> int:
        """Until a signal or a child that cannot start; the exit code."""
        before = signal.signal(signal.SIGHUP, self._asked_to_renew)
        try:
            while True:
                code = self._poll_all()
                if code is not None:
                    return code
                if self._restart_requested:
                    self._restart_requested = False
                    self._rolling_restart(stop)
                if stop.wait(_LOOK_SECONDS):
                    return 0
        finally:
            signal.signal(signal.SIGHUP, before)
            self._stop_all()

    def _asked_to_renew(self, _number: int, _frame: FrameType | None) -> None:
        self._restart_requested = True

    def _poll_all(self) -> int | None:
        now = self._clock.monotonic()
        for child in self._children:
            if child.start_at is not None and now >= child.start_at and self._others_ready(child):
                self._start_if_wanted(child, now)
            elif child.process is not None and child.start_at is None:
                ended = self._poll(child, now)
                if ended is not None:
                    return ended
        return None

    def _others_ready(self, child: ChildSpec) -> bool:
        """The first child is the engine; the others wait for it."""
        return child is self._children[0] or self._children[0].was_ready

    def _start_if_wanted(self, child: ChildSpec, now: float) -> None:
        if child.is_needed():
            self._start(child)
        else:
            child.start_at = now + NEED_CHECK_SECONDS

    def _start(self, child: ChildSpec) -> None:
        child.process = subprocess.Popen(child.command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
        child.started_at, child.start_at = self._clock.monotonic(), None

    def _poll(self, child: ChildSpec, now: float) -> int | None:
        process = child.process
        assert process is not None
        code = process.poll()
        if code is None:
            child.was_ready = child.was_ready or child.is_ready(process.pid)
            return None
        if child.primary and code == 0:
            return 0
        if child.required and not child.was_ready and code > 0:
            return 1
        self._stop(child)  # its end of the pipe
        wait = child.restarts.next_delay(now - child.started_at)
        log.warning(
            "The %s ended (%s); it restarts in %.1f s",
            child.name,
            _ending(code),
            wait,
            extra={"action": "child.ended", "child": child.name, "child_pid": process.pid},
        )
        child.start_at = now + wait
        return None

    def _rolling_restart(self, stop: StopSignal) -> None:
        """One worker after the other: end it, start it, wait until it is ready. What is not vital is none."""
        for child in self._children[1:]:
            if child.process is None or child.start_at is not None or not child.required:
                continue
            self._stop(child)
            self._start(child)
            assert child.process is not None
            while child.process.poll() is None and not child.is_ready(child.process.pid):
                if stop.wait(_LOOK_SECONDS):
                    return

    def _stop_all(self) -> None:
        for child in reversed(self._children):
            self._stop(child)

    def _stop(self, child: ChildSpec) -> None:
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
