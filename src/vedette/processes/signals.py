"""Running until somebody says stop: Ctrl-C or SIGTERM, noticed between two steps and never within one."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Self

__all__ = ["StopSignal"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """While it is entered, SIGINT and SIGTERM only wake `wait`; a second signal acts as it always did.

    A handler may run in the middle of anything, so all it does is to write a byte into a pipe.
    """

    def __init__(self) -> None:
        self._before = {each: signal.getsignal(each) for each in _SIGNALS}
        self._reader, self._writer = os.pipe()
        self._received = False

    def wait(self, seconds: float | None) -> bool:
        """Wait so long, for ever when None, or until a signal came; whether one came."""
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
