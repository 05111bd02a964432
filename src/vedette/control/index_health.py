"""Is the index reliable? A state machine with three states, fed with samples.

    sure ──▶ doubted           more than 2 % of absent keys pass the Bloom filters: rebuild them
    sure, doubted ──▶ unsure   more than 5 % pass, or the p99 of a lookup is above 50 ms: broadcast, fan-out 3
    unsure ──▶ sure            after a minute, if neither holds any more

Only samples of at least 1,000 absent keys are used to judge Bloom filters.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["FAN_OUT", "IndexHealth", "Verdict"]

FAN_OUT = 3
REBUILD_SHARE = 0.02
BROADCAST_SHARE = 0.05
SLOW_MS = 50.0
SAMPLE = 1_000
UNSURE_SECONDS = 60.0
_BATCHES = 200

State = Literal["sure", "doubted", "unsure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    state: State
    fan_out: int
    rebuild: bool
    reason: str = ""


@dataclass(slots=True)
class IndexHealth:
    """One per pipeline. Call `observe` after every batch; it returns what to do."""

    broadcast_share: float = BROADCAST_SHARE
    state: State = "sure"
    reason: str = ""
    until: float = 0.0
    """When an unsure index is checked again, on the monotonic clock."""
    absent: int = 0
    passed: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_BATCHES))
    """Milliseconds of matching per 1,000 changes, of the last batches."""

    def observe(self, *, absent: int, passed: int, changes: int, match_ms: float, now: float) -> Verdict:
        self.absent += absent
        self.passed += passed
        if changes:
            self.times.append(match_ms / max(1.0, changes / 1000))
        share = self._share()
        trouble = self._trouble(share)
        rebuild = False
        if self.state == "unsure" and now < self.until:
            pass
        elif trouble:
            self.state, self.reason, self.until = "unsure", trouble, now + UNSURE_SECONDS
            rebuild = share is not None and share > REBUILD_SHARE
            self._forget()
        elif share is not None and share > REBUILD_SHARE:
            self.state, self.reason, rebuild = "doubted", f"{share:.1%} of absent keys pass", True
            self._forget()
        elif share is not None or self.state == "unsure":
            self.state, self.reason = "sure", ""
            self._forget_sample()
        fan_out = FAN_OUT if self.state == "unsure" else 0
        return Verdict(state=self.state, fan_out=fan_out, rebuild=rebuild, reason=self.reason)

    def _share(self) -> float | None:
        return self.passed / self.absent if self.absent >= SAMPLE else None

    def _trouble(self, share: float | None) -> str:
        if share is not None and share > self.broadcast_share:
            return f"{share:.1%} of absent keys pass"
        if len(self.times) >= 20 and sorted(self.times)[int(len(self.times) * 0.99)] > SLOW_MS:
            return "look-ups are slow"
        return ""

    def _forget(self) -> None:
        self._forget_sample()
        self.times.clear()

    def _forget_sample(self) -> None:
        self.absent = self.passed = 0
