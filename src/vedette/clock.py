"""Time and randomness enter Vedette here and nowhere else, so that tests can hold both in their hands."""

from __future__ import annotations

import heapq
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Condition, Thread
from typing import Protocol

__all__ = ["Clock", "Due", "SystemClock", "system_random"]

log = logging.getLogger(__name__)


class Due(Protocol):
    """Something that is due at a moment."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where the present comes from. `monotonic` measures spans, `now` names moments."""

    def now(self) -> datetime:
        """The present moment in UTC, in whole milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def call_at(self, due: float, callback: Callable[[], object]) -> Due:
        """Call back when `monotonic()` reaches `due`, in a thread of the clock's choice."""
        ...


class _Appointment:
    __slots__ = ("callback", "cancelled", "due", "rank")

    def __init__(self, due: float, rank: int, callback: Callable[[], object]) -> None:
        self.due, self.rank, self.callback = due, rank, callback
        self.cancelled = False

    def __lt__(self, other: _Appointment) -> bool:
        return (self.due, self.rank) < (other.due, other.rank)

    def cancel(self) -> None:
        self.cancelled = True


class SystemClock:
    """The machine's own clock. One thread keeps all its appointments; it starts with the first."""

    def __init__(self) -> None:
        self._bell = Condition()
        self._appointments: list[_Appointment] = []
        self._ranks = 0
        self._keeper: Thread | None = None

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1000, UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def call_at(self, due: float, callback: Callable[[], object]) -> Due:
        with self._bell:
            self._ranks += 1
            appointment = _Appointment(due, self._ranks, callback)
            heapq.heappush(self._appointments, appointment)
            if self._keeper is None:
                self._keeper = Thread(target=self._keep, name="vedette-clock", daemon=True)
                self._keeper.start()
            self._bell.notify()
        return appointment

    def _keep(self) -> None:
        while True:
            appointment = self._next()
            try:
                appointment.callback()
            except Exception:
                log.exception("An appointment failed", extra={"action": "clock.failed"})

    def _next(self) -> _Appointment:
        """Wait for the first appointment that is due and still wanted."""
        with self._bell:
            while True:
                while self._appointments and self._appointments[0].cancelled:
                    heapq.heappop(self._appointments)
                left = self._appointments[0].due - time.monotonic() if self._appointments else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._appointments)
                self._bell.wait(left)


def system_random() -> random.Random:
    """A source of randomness seeded by the operating system."""
    return random.Random()  # noqa: S311 - jitter and sampling, never secrets
