"""Jobs: deliveries as a Python loop. `for job in session.consume("WATCH …"): with job: …`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vedette.change import Event

if TYPE_CHECKING:
    from vedette.engine.watch_handle import WatchHandle

__all__ = ["Job", "Jobs"]

log = logging.getLogger(__name__)


class Job:
    """One delivery. As a context manager it is acknowledged when the block ends, given back when it fails.

    An Exception in the block is logged and goes no further: the job will be tried again, or end as a dead letter, and
    the loop goes on. What is no Exception (a Ctrl-C) gives the job back without counting an attempt, and is raised.
    """

    def __init__(self, handle: WatchHandle, event: Event) -> None:
        self._handle, self._event = handle, event
        self.ended = False
        """Whether it was acknowledged, given back or rejected."""

    @property
    def match(self) -> Mapping[str, Any]:
        return self._event.match or {}

    @property
    def delivery_id(self) -> str:
        assert self._event.delivery_id is not None
        return self._event.delivery_id

    @property
    def attempt(self) -> int:
        """1 for the first time that it is handed out."""
        return int(self._event.attributes["attempt"])

    def ack(self) -> None:
        self._handle.ack(self._event)
        self.ended = True

    def nack(self, delay: timedelta | None = None, cause: str | None = None) -> None:
        """Give it back, to be handed out again now or after the delay."""
        self._handle.nack(self._event, delay=delay, cause=cause)
        self.ended = True

    def reject(self, reason: str | None = None) -> None:
        """Nobody shall try it again: it becomes a dead letter."""
        self._handle.nack(self._event, retry=False, cause=reason)
        self.ended = True

    def extend(self, by: timedelta | None = None) -> None:
        """More time: `by` from now, or another ack_timeout."""
        self._handle.extend(self._event, by)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self.ended:
            return False
        if error is None:
            self.ack()
            return False
        if not isinstance(error, Exception):
            self._handle.release(self._event)
            return False
        log.warning(
            "Job %s failed at attempt %d: %s: %s",
            self.delivery_id,
            self.attempt,
            kind.__name__ if kind is not None else "",
            error,
            exc_info=error,
            extra={"action": "job.failed", "delivery": self.delivery_id},
        )
        self.nack(cause=f"{type(error).__name__}: {error}")
        return True

    def __repr__(self) -> str:
        return f"<job {self.delivery_id}, attempt {self.attempt}: {dict(self.match)}>"


class Jobs:
    """An endless loop over a consume watch, at most `prefetch` in hand. Leaving it gives back what was not begun."""

    def __init__(self, handle: WatchHandle, prefetch: int, timeout: float | None) -> None:
        self.handle = handle
        self._prefetch, self._timeout = prefetch, timeout
        self._fetched: deque[Event] = deque()

    def __iter__(self) -> Iterator[Job]:
        try:
            while (event := self._next()) is not None:
                yield Job(self.handle, event)
        finally:
            self.close()

    def _next(self) -> Event | None:
        """The next delivery; None when none came for `timeout` seconds, or the watch has ended."""
        while not self._fetched:
            event = self.handle.next(self._timeout)
            if event is None:
                return None
            if event.type == "consumed":
                self._fetched.append(event)
                self._fetched.extend(self.handle.poll(self._prefetch - 1) if self._prefetch > 1 else ())
        return self._fetched.popleft()

    def close(self) -> None:
        """Cancel the watch; what it holds goes to others at once."""
        left, self._fetched = self._fetched, deque()
        if self.handle.status != "cancelled" and not self.handle.lasts:
            self.handle.cancel()
        elif self.handle.status != "cancelled":
            for event in left:
                self.handle.release(event)
