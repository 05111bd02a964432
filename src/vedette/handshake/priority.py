"""The effective priority of a watch, and the rotation between high-first and low-first claims.

docs/design/decisions/0055-handshake-priority.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from vedette.handshake.config import HIGHEST_PRIORITY
from vedette.handshake.health import HealthStatus, WatchHealth

__all__ = [
    "HIGH_FIRST_CLAIMS",
    "LOW_FIRST_CLAIMS",
    "RECENT_SUCCESS_WINDOW",
    "PriorityRotation",
    "effective_priority",
]

RECENT_SUCCESS_WINDOW = timedelta(seconds=3_600)
"""A healthy watch with a success in this window gains one point."""
_PENALTY: Mapping[HealthStatus, int] = {HealthStatus.DEGRADED: -1, HealthStatus.BACKOFF: -2}


def effective_priority(watch_priority: int, health: WatchHealth, now: datetime) -> int:
    """Return the priority from 0 to 10: degraded −1, backoff −2, disabled 0, healthy with a recent success +1."""
    status = health.health_status
    if status is HealthStatus.DISABLED:
        return 0
    bonus = 1 if status is HealthStatus.HEALTHY and _recent_success(health, now) else 0
    return max(0, min(HIGHEST_PRIORITY, watch_priority + _PENALTY.get(status, 0) + bonus))


def _recent_success(health: WatchHealth, now: datetime) -> bool:
    last = health.last_success_at
    return last is not None and health.consecutive_errors == 0 and now - last < RECENT_SUCCESS_WINDOW


HIGH_FIRST_CLAIMS = 10
LOW_FIRST_CLAIMS = 3


@dataclass(frozen=True, slots=True)
class PriorityRotation:
    """Chooses the order of each claim. Low-first claims are spread evenly, so that low priorities do not starve."""

    claims: int = 0

    def low_first(self) -> bool:
        """True if the next claim takes low priorities first."""
        cycle = HIGH_FIRST_CLAIMS + LOW_FIRST_CLAIMS
        position = self.claims % cycle
        return (position + 1) * LOW_FIRST_CLAIMS // cycle > position * LOW_FIRST_CLAIMS // cycle

    def next(self) -> PriorityRotation:
        return PriorityRotation(self.claims + 1)
