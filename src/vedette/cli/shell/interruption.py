"""Ctrl-C while a statement runs.

A statement cannot be stopped half way: that would leave the engine between two states. So the first Ctrl-C only says
that it goes on, and the second ends the process on the spot, which is safe: what was acknowledged is on disk.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["defer_interrupts"]

INTERRUPTED = 130
_GOES_ON = (
    b"\nThe statement is still running. Ctrl-C again ends the shell at once; what was committed stays.\n"
)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """For the length of a statement, in the main thread."""
    asked = False

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(INTERRUPTED)
        asked = True
        os.write(2, _GOES_ON)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
