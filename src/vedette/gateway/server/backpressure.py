"""How full is too full: of one client, and of a gateway as a whole. Decisions only; the shell acts on them.

One client has a high and a low mark. Above the high mark nothing more is queued for it: its subscriptions fall behind
and are brought up from the replay window when it has drained to the low mark. So a stuck client holds `high` bytes and
costs the others nothing. When the window cannot bring it up any more it is told so (`resync-required`).

A gateway has three marks over the bytes that wait for all its clients: at 70 % of its limit subscriptions of low
priority are shed, at 90 % all of them; both end below 60 % (spec/pipeline.md, rulings 9 to 11). Shed means told:
`resync-required`, once, and nothing more until the client resumes or subscribes again.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Load", "LoadMonitor", "OutboxMeter", "RequestBudget"]


class Load(IntEnum):
    NORMAL = 0
    SHED_LOW_PRIORITY = 1
    """Subscriptions of low priority are shed."""
    SHED_ALL = 2
    """All subscriptions are shed."""


class LoadMonitor:
    """The load of a gateway, with hysteresis."""

    def __init__(self, limit_bytes: int, *, soft: float = 0.7, hard: float = 0.9, low: float = 0.6) -> None:
        if not 0 < low <= soft <= hard <= 1:
            raise ValueError("marks rise: 0 < low <= soft <= hard <= 1")
        self.limit_bytes = limit_bytes
        self._soft, self._hard, self._low = soft * limit_bytes, hard * limit_bytes, low * limit_bytes
        self.load = Load.NORMAL

    def measure(self, waiting_bytes: int) -> Load:
        """The load now that so many bytes wait."""
        if waiting_bytes >= self._hard:
            self.load = Load.SHED_ALL
        elif waiting_bytes < self._low:
            self.load = Load.NORMAL
        elif waiting_bytes >= self._soft:
            self.load = max(self.load, Load.SHED_LOW_PRIORITY)
        return self.load


class RequestBudget:
    """The bytes that all clients of a gateway have asked with and that wait for an answer."""

    __slots__ = ("_most", "waiting")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.waiting = 0

    def has_room(self, size: int) -> bool:
        """Whether so many more may wait; something always may."""
        return not self.waiting or self.waiting + size <= self._most


class OutboxMeter:
    """What waits for one client. `clogged` from the high mark until the low mark."""

    __slots__ = ("clogged", "high", "low", "waiting")

    def __init__(self, high: int, low: int) -> None:
        if not 0 <= low < high:
            raise ValueError("the low mark is below the high mark")
        self.high, self.low = high, low
        self.waiting = 0
        self.clogged = False

    def add(self, size: int) -> bool:
        """Bytes were queued; whether that clogged it."""
        self.waiting += size
        if not self.clogged and self.waiting >= self.high:
            self.clogged = True
            return True
        return False

    def drained(self, left: int) -> bool:
        """So many bytes are left; whether that freed it."""
        self.waiting = left
        if self.clogged and left <= self.low:
            self.clogged = False
            return True
        return False
