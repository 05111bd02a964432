"""Stop requests of a process: SIGINT, SIGTERM, and the end of the supervisor.

The supervisor holds the write end of a pipe that is the standard input of each child. When the supervisor exits, the
child reads end-of-file and stops.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from threading import Thread
from types import FrameType, TracebackType
from typing import Self

__all__ = ["StopSignal", "stop_on_signals", "terminate_with_supervisor"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_READ_BYTES = 4096


class StopSignal:
    """Inside the context, the first SIGINT or SIGTERM only ends `wait`. A second signal has its usual effect.

    A signal handler may run between any two instructions, so it only writes a byte to a pipe.
    """

    def __init__(self) -> None:
        self._before = {each: signal.getsignal(each) for each in _SIGNALS}
        self._reader, self._writer = os.pipe()
        self._received = False

    def wait(self, seconds: float | None) -> bool:
        """Wait until a signal was received or the time has passed (None: no limit). True if a signal was received."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        return bool(ready)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._received:
            self._received = True
            os.write(self._writer, b".")
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        os.close(self._reader)
        os.close(self._writer)


def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Set `stop` on SIGTERM, on SIGINT, and when the supervisor has exited."""
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    descriptor = sys.stdin.fileno()

    def read_pipe() -> None:
        if not os.read(descriptor, _READ_BYTES):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, read_pipe)


def terminate_with_supervisor() -> None:
    """Send this process SIGTERM when the supervisor has exited. For children without an event loop."""

    def wait_for_end() -> None:
        while os.read(sys.stdin.fileno(), _READ_BYTES):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=wait_for_end, name="vedette-supervisor-pipe", daemon=True).start()
