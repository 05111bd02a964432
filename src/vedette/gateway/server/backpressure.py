"""Outbox limits of one client and of a whole gateway. Decisions only; the connections act on them.

A client has a high and a low mark. Above the high mark nothing more is queued: its subscriptions are held, and catch up
from the replay window once the outbox has drained to the low mark. So a stalled client holds at most `high` bytes and
does not affect others. If the window no longer has the events, the client gets `resync-required`.

A gateway has three marks on the outbox bytes of all clients. At 70 % of its limit it sheds low-priority subscriptions,
at 90 % all; both end below 60 %. A shed subscription gets one `resync-required` and no events until the client resumes
or subscribes again.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Load", "LoadMonitor", "OutboxMeter", "RequestBudget"]


class Load(IntEnum):
    NORMAL = 0
    SHED_LOW_PRIORITY = 1
    """Low-priority subscriptions are shed."""
    SHED_ALL = 2
    """All subscriptions are shed."""


class LoadMonitor:
    """Load level of a gateway, with hysteresis."""

    def __init__(self, limit_bytes: int, *, soft: float = 0.7, hard: float = 0.9, low: float = 0.6) -> None:
        if not 0 < low <= soft <= hard <= 1:
            raise ValueError("marks must satisfy 0 < low <= soft <= hard <= 1")
        self.limit_bytes = limit_bytes
        self._soft, self._hard, self._low = soft * limit_bytes, hard * limit_bytes, low * limit_bytes
        self.load = Load.NORMAL

    def measure(self, waiting_bytes: int) -> Load:
        """Update and return the load level."""
        if waiting_bytes >= self._hard:
            self.load = Load.SHED_ALL
        elif waiting_bytes < self._low:
            self.load = Load.NORMAL
        elif waiting_bytes >= self._soft:
            self.load = max(self.load, Load.SHED_LOW_PRIORITY)
        return self.load


class RequestBudget:
    """Limits the bytes of unanswered requests of all clients of a gateway."""

    __slots__ = ("_max_bytes", "pending_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.pending_bytes = 0

    def has_room(self, size: int) -> bool:
        """Return True if `size` more bytes fit. With nothing pending, any size fits."""
        return not self.pending_bytes or self.pending_bytes + size <= self._max_bytes


class OutboxMeter:
    """Outbox of one client. `is_full` is True from the high mark until it has drained to the low mark."""

    __slots__ = ("high", "is_full", "low", "waiting")

    def __init__(self, high: int, low: int) -> None:
        if not 0 <= low < high:
            raise ValueError("the low mark must be below the high mark")
        self.high, self.low = high, low
        self.waiting = 0
        self.is_full = False

    def add(self, size: int) -> bool:
        """Count queued bytes. Return True if the outbox just became full."""
        self.waiting += size
        if not self.is_full and self.waiting >= self.high:
            self.is_full = True
            return True
        return False

    def drained(self, left: int) -> bool:
        """Set the remaining bytes. Return True if the outbox is no longer full."""
        self.waiting = left
        if self.is_full and left <= self.low:
            self.is_full = False
            return True
        return False
