"""Is the subscription index reliable? A state machine with three states, fed with the counters of each batch. Pure.

    sure ──▶ doubted           more than 2 % of absent keys pass the Bloom filters: rebuild the index
    sure, doubted ──▶ unsure   more than 5 % pass, or the p99 of a lookup is above 50 ms: broadcast with fan-out 3
    unsure ──▶ sure            after a minute, if neither holds any more

An absent key is a looked-up key that no subscription has. A rate is computed from at least 1,000 absent keys.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["FAN_OUT", "IndexDecision", "IndexHealth"]

FAN_OUT = 3
"""Number of gateways that receive each change unfiltered while the index cannot be trusted."""
REBUILD_RATE = 0.02
"""False-positive rate above which the index is rebuilt."""
BROADCAST_RATE = 0.05
"""False-positive rate above which changes are broadcast."""
SLOW_LOOKUP_MS = 50.0
"""Milliseconds of matching per 1,000 changes above which lookups are slow."""
MIN_SAMPLE_KEYS = 1_000
"""Absent keys that a rate needs."""
BROADCAST_SECONDS = 60.0
"""Seconds that a broadcast lasts at least."""
_BATCHES = 200
_MIN_BATCHES = 20
"""Batches over which the p99 of lookups is computed: at most and at least."""

State = Literal["sure", "doubted", "unsure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDecision:
    """What to do about the index after a batch."""

    state: State
    fan_out: int
    rebuild: bool
    reason: str = ""


@dataclass(slots=True)
class IndexHealth:
    """One per pipeline. Call `observe` after every batch; it returns what to do."""

    broadcast_rate: float = BROADCAST_RATE
    state: State = "sure"
    reason: str = ""
    until: float = 0.0
    """When an unsure index is checked again, on the monotonic clock."""
    absent_keys: int = 0
    false_positives: int = 0
    """Of the current sample."""
    lookup_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_BATCHES))
    """Milliseconds of matching per 1,000 changes, one entry per batch."""

    def observe(
        self, *, absent_keys: int, false_positives: int, changes: int, match_ms: float, now: float
    ) -> IndexDecision:
        """Take the counters of one batch into account. `now` is monotonic time in seconds."""
        self.absent_keys += absent_keys
        self.false_positives += false_positives
        if changes:
            self.lookup_ms.append(match_ms / max(1.0, changes / 1000))
        rate = self._false_positive_rate()
        broadcast_reason = self._broadcast_reason(rate)
        rebuild = False
        if self.state == "unsure" and now < self.until:
            pass
        elif broadcast_reason:
            self.state, self.reason, self.until = "unsure", broadcast_reason, now + BROADCAST_SECONDS
            rebuild = rate is not None and rate > REBUILD_RATE
            self._reset()
        elif rate is not None and rate > REBUILD_RATE:
            self.state, self.reason, rebuild = "doubted", _false_positive_text(rate), True
            self._reset()
        elif rate is not None or self.state == "unsure":
            self.state, self.reason = "sure", ""
            self._reset_sample()
        fan_out = FAN_OUT if self.state == "unsure" else 0
        return IndexDecision(state=self.state, fan_out=fan_out, rebuild=rebuild, reason=self.reason)

    def _false_positive_rate(self) -> float | None:
        return self.false_positives / self.absent_keys if self.absent_keys >= MIN_SAMPLE_KEYS else None

    def _broadcast_reason(self, rate: float | None) -> str:
        if rate is not None and rate > self.broadcast_rate:
            return _false_positive_text(rate)
        if len(self.lookup_ms) >= _MIN_BATCHES:
            p99 = sorted(self.lookup_ms)[int(len(self.lookup_ms) * 0.99)]
            if p99 > SLOW_LOOKUP_MS:
                return f"lookups are slow: p99 {p99:.0f} ms per 1,000 changes"
        return ""

    def _reset(self) -> None:
        self._reset_sample()
        self.lookup_ms.clear()

    def _reset_sample(self) -> None:
        self.absent_keys = self.false_positives = 0


def _false_positive_text(rate: float) -> str:
    return f"{rate:.1%} of absent keys pass the Bloom filters"
