"""A thread that does what can wait: soon after it is asked to, when it is quiet, or at the latest after a while."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Thread

from vedette.clock import SystemClock
from vedette.errors import StoreError

__all__ = ["Mover"]

QUIET_SECONDS = 0.005
"""So long nothing must have been asked for."""
LATEST_SECONDS = 0.25
"""So long after it was asked for it is done whether it is quiet or not."""
RETRY_SECONDS = 1.0
"""After a failure: a full disk, say."""

log = logging.getLogger(__name__)
_real_time = SystemClock()


class Mover:
    """`move` does a part of the work and says whether there is more. It is called by one thread at a time, this one."""

    def __init__(self, move: Callable[[], bool], name: str) -> None:
        self._move, self._name = move, name
        self._asked = 0
        self._awake = self._closed = False
        self._bell = Condition()
        self._thread: Thread | None = None

    def ask(self) -> None:
        """There is something to do. Hardly costs anything while it is known that there is."""
        self._asked += 1
        if not self._awake:
            with self._bell:
                self._awake = True
                if self._thread is None and not self._closed:
                    self._thread = Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
                self._bell.notify()

    def close(self) -> None:
        """Stop; what is left is left. Closing twice is nothing."""
        with self._bell:
            self._closed = True
            self._bell.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait_for_quiet():
            done = self._asked
            try:
                while self._move() and not self._closed:
                    pass
            except StoreError as problem:
                log.warning("Pending batches wait: %s", problem, extra={"action": "pending.move_failed"})
                if problem.code == "E6002":  # they are another engine's now
                    return
                self._pause(RETRY_SECONDS)
                continue
            with self._bell:
                self._awake = self._asked != done

    def _wait_for_quiet(self) -> bool:
        """Sleep until there is something to do and it is time; False when closed."""
        with self._bell:
            self._bell.wait_for(lambda: self._awake or self._closed)
        latest = _real_time.monotonic() + LATEST_SECONDS
        while not self._closed:
            seen = self._asked
            self._pause(QUIET_SECONDS)
            if self._asked == seen or _real_time.monotonic() >= latest:
                break
        return not self._closed

    def _pause(self, seconds: float) -> None:
        with self._bell:
            self._bell.wait_for(lambda: self._closed, seconds)
