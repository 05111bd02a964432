"""A thread for deferred work: it runs soon after a request when idle, or after a delay at the latest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Thread

from vedette.clock import SystemClock
from vedette.errors import StoreError

__all__ = ["BackgroundWorker"]

URGENT_IDLE_SECONDS, URGENT_MAX_DELAY_SECONDS = 0.005, 0.25
"""Seconds without a request before the work runs, and the maximum delay after a request."""
LAZY_IDLE_SECONDS, LAZY_MAX_DELAY_SECONDS = 0.05, 2.0
"""The same for work without urgency."""
SMALL_REMAINDER_ROWS = 256
"""Amount of work left for the next run while requests keep arriving."""
THREAD_IDLE_SECONDS = 10.0
"""Idle seconds after which the thread ends."""
RETRY_SECONDS = 1.0
"""Seconds to wait after a failure, for example a full disk."""

log = logging.getLogger(__name__)
_real_time = SystemClock()


class BackgroundWorker:
    """`step` does part of the work and returns how much is left. Only this thread calls it."""

    def __init__(self, move: Callable[[], int], name: str) -> None:
        self._step, self._name = move, name
        self._asked = 0
        self._has_work = self._soon = self._closed = False
        self._since: float | None = None
        """Time of the first unfinished request."""
        self._work_available = Condition()
        self._thread: Thread | None = None

    def request(self, *, soon: bool = True) -> None:
        """Request work. Cheap while a request is pending."""
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
        """Stop; unfinished work stays. Idempotent."""
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
                    "Pending batches could not be applied to the tables; retrying: %s",
                    problem,
                    extra={"action": "pending.move_failed"},
                )
                if problem.code == "E6002":  # another engine has the file now
                    return
                self._pause(RETRY_SECONDS)

    def _work(self) -> None:
        """Run until all work is done.

        While requests arrive, do only what is due, because many small steps cost the most.
        """
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
        """Sleep until work is due. Return False if closed, or after a long time without a request."""
        with self._work_available:
            if not self._work_available.wait_for(lambda: self._has_work or self._closed, THREAD_IDLE_SECONDS):
                self._thread = (
                    None  # there may be thousands of databases; the next request starts another thread
                )
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
