"""Counters of a gateway since its start. Workers send them over the link; `/metrics` shows them.

The latency of an event is the time from its commit until it was written to its last receiver on this gateway. Replayed
events are counted but not timed.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

__all__ = ["DELAY_BOUNDS", "Counters", "LatencyHistogram"]

DELAY_BOUNDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram buckets, in seconds."""


def _no_counts() -> list[int]:
    return [0] * (len(DELAY_BOUNDS) + 1)


class LatencyHistogram(msgspec.Struct, array_like=True):
    counts: list[int] = msgspec.field(default_factory=_no_counts)
    """Number of observations per bucket; the last bucket has no upper bound."""
    seconds: float = 0.0
    """Sum of all observations."""

    def add(self, seconds: float, times: int) -> None:
        self.counts[bisect_left(DELAY_BOUNDS, seconds)] += times
        self.seconds += seconds * times

    def merge(self, other: LatencyHistogram) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds


class Counters(msgspec.Struct, array_like=True, kw_only=True):
    opened: int = 0
    """Authenticated connections."""
    delivered: int = 0
    """Events sent to connections."""
    replays: int = 0
    """Replay requests of lagging subscriptions."""
    resyncs: dict[str, int] = {}
    """Subscriptions that had to resync, by reason."""
    closed: dict[int, int] = {}
    """Connections closed by the server, by code."""
    refused: dict[str, int] = {}
    """Messages rejected by the gateway itself, by error code."""
    delays: dict[str, LatencyHistogram] = {}
    """Latency histograms by database."""

    def count_resync(self, reason: str) -> None:
        self.resyncs[reason] = self.resyncs.get(reason, 0) + 1

    def count_closed(self, code: int) -> None:
        self.closed[code] = self.closed.get(code, 0) + 1

    def count_refused(self, code: str) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1

    def delays_of(self, tenant: str) -> LatencyHistogram:
        found = self.delays.get(tenant)
        if found is None:
            found = self.delays[tenant] = LatencyHistogram()
        return found
