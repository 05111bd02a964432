"""A thread that does what can wait: soon after it is asked to, when it is quiet, or at the latest after a while."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Thread

from vedette.clock import SystemClock
from vedette.errors import StoreError

__all__ = ["BackgroundWorker"]

URGENT_IDLE_SECONDS, URGENT_MAX_DELAY_SECONDS = 0.005, 0.25
"""So long nothing must have been asked for; and so long after it was, it is done whether it is quiet or not."""
LAZY_IDLE_SECONDS, LAZY_MAX_DELAY_SECONDS = 0.05, 2.0
"""The same for what is in no hurry."""
SMALL_REMAINDER_ROWS = 256
"""So little is left for the next time when more comes all the while."""
THREAD_IDLE_SECONDS = 10.0
"""So long the thread waits to be asked before it ends."""
RETRY_SECONDS = 1.0
"""After a failure: a full disk, say."""

log = logging.getLogger(__name__)
_real_time = SystemClock()


class BackgroundWorker:
    """`move` does a part of the work and says how much is left. It is called by one thread at a time, this one."""

    def __init__(self, move: Callable[[], int], name: str) -> None:
        self._step, self._name = move, name
        self._asked = 0
        self._has_work = self._soon = self._closed = False
        self._since: float | None = None
        """When it was asked for what is not done yet."""
        self._work_available = Condition()
        self._thread: Thread | None = None

    def request(self, *, soon: bool = True) -> None:
        """There is something to do. Hardly costs anything while it is known that there is."""
        self._asked += 1
        self._soon = self._soon or soon
        if not self._has_work:
            with self._work_available:
                self._has_work = True
                if self._thread is None and not self._closed:
                    self._thread = Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
                self._work_available.notify()

    def close(self) -> None:
        """Stop; what is left is left. Closing twice is nothing."""
        with self._work_available:
            self._closed = True
            self._work_available.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while self._wait_for_quiet():
            try:
                self._work()
            except StoreError as problem:
                log.warning(
                    "Pending batches could not be moved to the tables and are retried: %s",
                    problem,
                    extra={"action": "pending.move_failed"},
                )
                if problem.code == "E6002":  # they are another engine's now
                    return
                self._pause(RETRY_SECONDS)

    def _work(self) -> None:
        """Until all is done. While more is asked for, only what is due: many small steps would cost the most."""
        asked = self._asked
        while left := self._step():
            if self._closed:
                return
            if self._asked != asked and not self._is_late():
                return
            if self._asked != asked and left < SMALL_REMAINDER_ROWS:
                self._since = None
                return
        with self._work_available:
            self._since = None
            self._has_work = self._asked != asked
            self._soon = self._soon and self._has_work

    def _wait_for_quiet(self) -> bool:
        """Sleep until there is something to do and it is time; False when closed, or when nobody asks for long."""
        with self._work_available:
            if not self._work_available.wait_for(lambda: self._has_work or self._closed, THREAD_IDLE_SECONDS):
                self._thread = None  # there may be thousands of databases; whoever asks next starts another
                return False
            if self._since is None:
                self._since = _real_time.monotonic()
        while not self._closed:
            asked = self._asked
            self._pause(URGENT_IDLE_SECONDS if self._soon else LAZY_IDLE_SECONDS)
            if self._asked == asked or self._is_late():
                break
        return not self._closed

    def _is_late(self) -> bool:
        assert self._since is not None
        most = URGENT_MAX_DELAY_SECONDS if self._soon else LAZY_MAX_DELAY_SECONDS
        return _real_time.monotonic() >= self._since + most

    def _pause(self, seconds: float) -> None:
        with self._work_available:
            self._work_available.wait_for(lambda: self._closed, seconds)
