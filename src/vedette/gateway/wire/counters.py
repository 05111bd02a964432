"""What a gateway counts since it began. Plain numbers: workers send them over the link, `/metrics` shows them.

The delay of an event is the time from its commit to the moment its last receiver here was written to. What is brought
up from the replay window is late by its nature and is counted, not timed.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

__all__ = ["DELAY_BOUNDS", "Counters", "LatencyHistogram"]

DELAY_BOUNDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: the upper ends of the parts that delays are counted in."""


def _no_counts() -> list[int]:
    return [0] * (len(DELAY_BOUNDS) + 1)


class LatencyHistogram(msgspec.Struct, array_like=True):
    counts: list[int] = msgspec.field(default_factory=_no_counts)
    """How many delays were in each part; the last part has no end."""
    seconds: float = 0.0
    """All delays together."""

    def add(self, seconds: float, times: int) -> None:
        self.counts[bisect_left(DELAY_BOUNDS, seconds)] += times
        self.seconds += seconds * times

    def merge(self, other: LatencyHistogram) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds


class Counters(msgspec.Struct, array_like=True, kw_only=True):
    opened: int = 0
    """Connections that have shown who they are."""
    delivered: int = 0
    """Events handed to connections."""
    replays: int = 0
    """How often a subscription that fell behind was brought up."""
    resyncs: dict[str, int] = {}
    """Subscriptions that were told to begin anew, by reason."""
    closed: dict[int, int] = {}
    """Connections that were closed from this side, by code."""
    refused: dict[str, int] = {}
    """Messages that were answered with an error of the gateway's own, by code."""
    delays: dict[str, LatencyHistogram] = {}
    """By database."""

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
