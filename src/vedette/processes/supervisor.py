"""Start, monitor and restart the child processes of `vedette serve`.

Theory of operation. The first child is the engine; the others start once it is ready. States of a child:

    WAITING   is_needed() is true                        ▸ STARTING   the process is spawned
    STARTING  is_ready(pid) is true                      ▸ READY
    STARTING  exit code > 0, required, never ready yet   ▸ stop everything, exit with 1
    any       exit code 0, primary                       ▸ stop everything, exit with 0
    any       any other exit                             ▸ BACKOFF    delay doubles up to a maximum
    BACKOFF   the delay has passed                       ▸ WAITING

SIGHUP restarts the required children except the engine, one at a time. SIGINT and SIGTERM stop all children in reverse
order. Each child's stdin is a pipe from this process; a child that reads end-of-file stops itself (`signals`). This
module uses the standard library only, so that the supervisor stays small.
"""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType

from vedette.clock import Clock
from vedette.processes.signals import StopSignal

__all__ = ["ChildSpec", "ExitAction", "RestartBackoff", "RestartDelays", "Supervisor", "decide_exit"]

log = logging.getLogger(__name__)
STOP_TIMEOUT_SECONDS = 20.0
"""A child that has not stopped after this time is killed."""
_POLL_INTERVAL_SECONDS = 0.1
NEED_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartDelays:
    initial_seconds: float = 0.1
    max_seconds: float = 10.0
    stable_after_seconds: float = 30.0
    """A process that ran for this long starts again with the initial delay."""


@dataclass(slots=True)
class RestartBackoff:
    """Computes the delay before each restart of one process. Does no I/O."""

    delays: RestartDelays = field(default_factory=RestartDelays)
    consecutive_restarts: int = 0

    def next_delay(self, uptime_seconds: float) -> float:
        """Return the delay before the next start, after the process ran for `uptime_seconds`."""
        if uptime_seconds >= self.delays.stable_after_seconds:
            self.consecutive_restarts = 0
        self.consecutive_restarts += 1
        doubled = self.delays.initial_seconds * 2.0 ** (self.consecutive_restarts - 1)
        return min(self.delays.max_seconds, doubled)


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """How to run one child. Holds no state."""

    name: str
    command: Sequence[str]
    is_ready: Callable[[int], bool]
    """True once the process with this pid serves requests."""
    is_needed: Callable[[], bool] = _always
    """Checked before every start; while false, checked again every second."""
    required: bool = True
    """The supervisor gives up if this child fails before it was ever ready."""
    primary: bool = False
    """A clean exit of this child ends the supervisor."""
    restart_delays: RestartDelays = field(default_factory=RestartDelays)


class ExitAction(Enum):
    RESTART = "restart"
    STOP = "stop"
    """Stop all children and exit with 0."""
    FAIL = "fail"
    """Stop all children and exit with 1. The child has reported why it could not start."""


def decide_exit(spec: ChildSpec, exit_code: int, *, was_ready: bool) -> ExitAction:
    """Return what to do after a child exited. A negative exit code is the signal that killed it."""
    if spec.primary and exit_code == 0:
        return ExitAction.STOP
    if spec.required and not was_ready and exit_code > 0:
        return ExitAction.FAIL
    return ExitAction.RESTART


@dataclass(slots=True)
class _Child:
    """The state of one child."""

    spec: ChildSpec
    backoff: RestartBackoff
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float | None = 0.0
    """When to start the process; None while it runs."""
    was_ready: bool = False


class Supervisor:
    """Runs the children until a stop request."""

    def __init__(self, specs: Sequence[ChildSpec], *, clock: Clock) -> None:
        self._children = [_Child(spec, RestartBackoff(spec.restart_delays)) for spec in specs]
        self._clock = clock
        self._restart_requested = False

    def run(self, stop: StopSignal) -> int:
        """Run until a stop signal, a clean exit of the primary child, or a failed start. Return the exit code."""
        before = signal.signal(signal.SIGHUP, self._on_hangup)
        try:
            while True:
                code = self._poll_all()
                if code is not None:
                    return code
                if self._restart_requested:
                    self._restart_requested = False
                    self._rolling_restart(stop)
                if stop.wait(_POLL_INTERVAL_SECONDS):
                    return 0
        finally:
            signal.signal(signal.SIGHUP, before)
            self._stop_all()

    def _on_hangup(self, _number: int, _frame: FrameType | None) -> None:
        self._restart_requested = True

    def _poll_all(self) -> int | None:
        """Start and check the children. Return the exit code of the supervisor if it must end."""
        now = self._clock.monotonic()
        for child in self._children:
            if child.start_at is not None and now >= child.start_at and self._may_start(child):
                self._start_if_needed(child, now)
            elif child.process is not None and child.start_at is None:
                code = self._poll(child, now)
                if code is not None:
                    return code
        return None

    def _may_start(self, child: _Child) -> bool:
        """The first child is the engine; the others wait until it is ready."""
        return child is self._children[0] or self._children[0].was_ready

    def _start_if_needed(self, child: _Child, now: float) -> None:
        if child.spec.is_needed():
            self._start(child)
        else:
            child.start_at = now + NEED_CHECK_SECONDS

    def _start(self, child: _Child) -> None:
        child.process = subprocess.Popen(child.spec.command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
        child.started_at, child.start_at = self._clock.monotonic(), None

    def _poll(self, child: _Child, now: float) -> int | None:
        process = child.process
        assert process is not None
        code = process.poll()
        if code is None:
            child.was_ready = child.was_ready or child.spec.is_ready(process.pid)
            return None
        action = decide_exit(child.spec, code, was_ready=child.was_ready)
        if action is not ExitAction.RESTART:
            return 0 if action is ExitAction.STOP else 1
        self._stop(child)  # closes the pipe
        delay = child.backoff.next_delay(now - child.started_at)
        log.warning(
            "%s exited (%s); restarting in %.1f s",
            child.spec.name,
            _describe_exit(code),
            delay,
            extra={"action": "child.ended", "child": child.spec.name, "child_pid": process.pid},
        )
        child.start_at = now + delay
        return None

    def _rolling_restart(self, stop: StopSignal) -> None:
        """Restart the required children except the engine, each after the one before is ready."""
        for child in self._children[1:]:
            if child.process is None or child.start_at is not None or not child.spec.required:
                continue
            self._stop(child)
            self._start(child)
            assert child.process is not None
            while child.process.poll() is None and not child.spec.is_ready(child.process.pid):
                if stop.wait(_POLL_INTERVAL_SECONDS):
                    return

    def _stop_all(self) -> None:
        for child in reversed(self._children):
            self._stop(child)

    def _stop(self, child: _Child) -> None:
        process = child.process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _describe_exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
