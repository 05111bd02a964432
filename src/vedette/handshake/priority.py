"""The priority a watch has in effect: seeds/watch-queue-handshake.md, Priority Management."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from vedette.handshake.config import HIGHEST_PRIORITY
from vedette.handshake.health import HealthStatus, WatchHealth

__all__ = ["RECENT_SUCCESS_WINDOW", "effective_priority"]

RECENT_SUCCESS_WINDOW = timedelta(seconds=3_600)
"""A success younger than this earns a healthy watch one point (ruling 16)."""
_PENALTY: Mapping[HealthStatus, int] = {HealthStatus.DEGRADED: -1, HealthStatus.BACKOFF: -2}


def effective_priority(watch_priority: int, health: WatchHealth, now: datetime) -> int:
    """From 0 to 10. Degraded −1, backoff −2, disabled 0, healthy with a recent success +1."""
    status = health.health_status
    if status is HealthStatus.DISABLED:
        return 0
    bonus = 1 if status is HealthStatus.HEALTHY and _recent_success(health, now) else 0
    return max(0, min(HIGHEST_PRIORITY, watch_priority + _PENALTY.get(status, 0) + bonus))


def _recent_success(health: WatchHealth, now: datetime) -> bool:
    last = health.last_success_at
    return last is not None and health.consecutive_errors == 0 and now - last < RECENT_SUCCESS_WINDOW
