"""Timers of all connections of a server: heartbeats, deadlines and token expiry. Event loop only.

One task serves all connections, because a timer per connection would cost more memory than the connection's own state.
Heartbeats are spread: the interval has `_BUCKETS` parts, and each part serves the connections of one bucket.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Protocol

from vedette.clock import Clock

__all__ = ["ConnectionTimers", "TimedConnection"]

log = logging.getLogger(__name__)
_BUCKETS = 16
_CHECK_SECONDS = 0.5
_EXPIRY_SLACK = 1_000
"""Outdated entries that the heap of token expiries may hold, in addition to one per connection."""


class TimedConnection(Protocol):
    """A connection with timers."""

    bucket: int

    def send_heartbeat(self) -> None: ...

    def check(self, now: float) -> None:
        """Close or abort the connection if one of its deadlines has passed. `now`: monotonic time."""

    def expire(self, moment: datetime) -> None:
        """Close the connection if its token has expired."""


class ConnectionTimers:
    def __init__(self, clock: Clock, *, heartbeat_seconds: float) -> None:
        self._clock, self._heartbeat_seconds = clock, heartbeat_seconds
        self.with_deadline: set[TimedConnection] = set()
        """Connections with a deadline: for authentication, for closing, or for reading their outbox."""
        self._buckets: list[set[TimedConnection]] = [set() for _ in range(_BUCKETS)]
        self._expiring: dict[TimedConnection, float] = {}
        """Expiry time of each connection's token, as a Unix timestamp."""
        self._expiries: list[tuple[float, int, TimedConnection]] = []
        """Heap of the same times. It also holds outdated entries, which are skipped."""
        self._sequence = 0
        """Makes heap entries with equal times comparable, and spreads connections over buckets."""
        self._round = 0

    def add(self, connection: TimedConnection) -> None:
        """Add a connection, which must authenticate in time."""
        self._sequence += 1
        self.with_deadline.add(connection)
        connection.bucket = self._sequence % _BUCKETS
        self._buckets[connection.bucket].add(connection)

    def remove(self, connection: TimedConnection) -> None:
        self.with_deadline.discard(connection)
        self._expiring.pop(connection, None)
        self._buckets[connection.bucket].discard(connection)

    def schedule_expiry(self, connection: TimedConnection, at: float) -> None:
        """Check the connection again when its token expires. A newer token replaces the earlier time."""
        self._sequence += 1
        self._expiring[connection] = at
        heappush(self._expiries, (at, self._sequence, connection))
        # Without this, outdated entries would keep closed connections alive.
        if len(self._expiries) > 2 * len(self._expiring) + _EXPIRY_SLACK:
            self._expiries = [each for each in self._expiries if self._expiring.get(each[2]) == each[0]]
            heapify(self._expiries)

    async def run(self) -> None:
        """Check deadlines twice a second and send heartbeats, until cancelled."""
        part = self._heartbeat_seconds / _BUCKETS
        due = self._clock.monotonic()
        while True:
            await asyncio.sleep(min(part, _CHECK_SECONDS))
            try:
                self.check()
                while self._clock.monotonic() >= due:
                    due += part
                    self._send_heartbeats()
            except Exception:
                log.exception("A round of heartbeats failed", extra={"action": "gateway.heartbeat_failed"})

    def _send_heartbeats(self) -> None:
        """Send heartbeats to the connections of the next bucket."""
        self._round += 1
        for connection in list(self._buckets[self._round % _BUCKETS]):
            connection.send_heartbeat()

    def check(self) -> None:
        """Act on the deadlines and token expiries that have passed."""
        now, moment = self._clock.monotonic(), self._clock.now()
        for connection in list(self.with_deadline):
            connection.check(now)
        while self._expiries and self._expiries[0][0] <= moment.timestamp():
            at, _, connection = heappop(self._expiries)
            if self._expiring.get(connection) == at:
                del self._expiring[connection]
                connection.expire(moment)
