"""Jobs: deliveries as a Python loop. `for job in session.consume("WATCH …"): with job: …`.

Several deliveries are fetched at a time, so some wait while one is processed. If the lease of a waiting one
expired, it would count as an attempt. Therefore the loop renews the leases of fetched jobs, and each again when it
starts.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vedette.change import Event
from vedette.errors import VedetteError, WatchError

if TYPE_CHECKING:
    from vedette.engine.session.watch_handle import WatchHandle

__all__ = ["Job", "Jobs"]

log = logging.getLogger(__name__)


class Job:
    """One delivery. As a context manager it is acknowledged when the block ends and returned when the block fails.

    An Exception in the block is logged and suppressed: the job is retried or becomes a dead letter, and the loop
    continues. Other exceptions, such as KeyboardInterrupt, release the job without counting an attempt and
    propagate. In both cases a transaction that the block began and did not end is rolled back.
    """

    def __init__(self, jobs: Jobs, event: Event) -> None:
        self._jobs, self._handle, self._event = jobs, jobs.handle, event
        self._within = False
        """True if a transaction was open when the block began."""
        self.ended = False
        """True if it was acknowledged, returned or rejected."""

    @property
    def match(self) -> Mapping[str, Any]:
        return self._event.match or {}

    @property
    def event(self) -> Event:
        return self._event

    @property
    def delivery_id(self) -> str:
        assert self._event.delivery_id is not None
        return self._event.delivery_id

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return int(self._event.attributes["attempt"])

    def ack(self) -> None:
        """Acknowledge: delete the element, in the session's transaction if one is open."""
        self._handle.ack(self._event)
        self.ended = True

    def nack(self, delay: timedelta | float | None = None, cause: str | None = None) -> None:
        """Return the job for another attempt, now or after `delay` (a timedelta, or seconds)."""
        self._handle.nack(self._event, delay=delay, cause=cause)
        self.ended = True

    def reject(self, reason: str | None = None) -> None:
        """Do not retry: the job becomes a dead letter."""
        self._handle.nack(self._event, retry=False, cause=reason)
        self.ended = True

    def extend(self, by: timedelta | float | None = None) -> None:
        """Extend the lease: `by` from now (a timedelta, or seconds), or another ack_timeout."""
        self._handle.extend(self._event, by)
        self._jobs.renew()

    def __enter__(self) -> Self:
        self._within = self._handle.session.transaction is not None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self._finish()
            return False
        self._roll_back()
        if isinstance(error, Exception):
            self._fail(error)
            return True
        if not self.ended:
            self._handle.release(self._event)
        return False

    def _finish(self) -> None:
        """Acknowledge after success.

        If the lease has expired, log it and continue: another consumer has the job.
        """
        if self.ended:
            return
        try:
            self.ack()
        except WatchError as error:
            if error.code != "E8004":
                raise
            log.warning(
                "Job %s finished after its lease; it is delivered again. Extend the lease or raise ack_timeout",
                self.delivery_id,
                extra={"action": "job.late", "delivery": self.delivery_id},
            )

    def _fail(self, error: Exception) -> None:
        log.warning(
            "Job %s failed at attempt %d: %s: %s",
            self.delivery_id,
            self.attempt,
            type(error).__name__,
            error,
            exc_info=error,
            extra={"action": "job.failed", "delivery": self.delivery_id},
        )
        try:  # an ACK in a transaction that was rolled back does not count
            self.nack(cause=f"{type(error).__name__}: {error}")
        except WatchError as problem:
            if problem.code != "E8004":
                raise

    def _roll_back(self) -> None:
        session = self._handle.session
        if not self._within and session.transaction is not None:
            session.execute("ROLLBACK")

    def __repr__(self) -> str:
        return f"<job {self.delivery_id}, attempt {self.attempt}: {dict(self.match)}>"


class Jobs:
    """An endless loop over a consume watch with at most `prefetch` open deliveries.

    On exit unprocessed ones are released.
    """

    def __init__(self, handle: WatchHandle, prefetch: int, timeout: float | None) -> None:
        self.handle = handle
        self._prefetch, self._timeout = prefetch, timeout
        self._fetched: deque[Event] = deque()
        self._clock = handle.session.database.clock
        self._renewed = 0.0
        """When the leases of the fetched jobs started."""

    def __iter__(self) -> Iterator[Job]:
        try:
            while (event := self._next()) is not None:
                yield Job(self, event)
        finally:
            self.close()

    def _next(self) -> Event | None:
        """The next delivery; None if none arrived for `timeout` seconds or the watch has ended."""
        while (self._fetched or self._fetch()) and self.handle.status != "cancelled":
            event = self._fetched.popleft()
            if self._is_work(event):
                return event
        return None

    def _fetch(self) -> bool:
        while (event := self.handle.next(self._timeout)) is not None:
            if event.type == "consumed":
                more = self.handle.poll(self._prefetch - 1) if self._prefetch > 1 else []
                self._fetched.extend((event, *more))
                self._renewed = self._clock.monotonic()
                return True
        return False

    def _is_work(self, event: Event) -> bool:
        """Renew its lease, and in time those of the others.

        Return False if the job was lost or withdrawn meanwhile.
        """
        if self._clock.monotonic() - self._renewed > self.handle.lease_seconds / 4:
            self.renew()
        return bool(self.handle.renew([event]))

    def renew(self) -> None:
        """Renew the leases of fetched jobs that have not started."""
        self._fetched = deque(self.handle.renew(self._fetched))
        self._renewed = self._clock.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the watch and release its deliveries.

        A durable watch is kept; only its deliveries are released.
        """
        left, self._fetched = self._fetched, deque()
        if self.handle.status == "cancelled":
            return
        if not self.handle.lasts:
            self.handle.cancel()
            return
        for event in left:
            try:
                self.handle.release(event)
            except VedetteError as error:
                if error.code not in ("E8004", "E5007"):  # the lease expired, or the session is closed
                    raise
