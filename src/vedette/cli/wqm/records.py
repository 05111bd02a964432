"""Rows of the handshake as records with the documented field names."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from vedette.handshake.degradation import Degradation
from vedette.handshake.error_patterns import ADVICE_BY_PATTERN, ErrorPattern
from vedette.handshake.exclusions import Exclusion
from vedette.handshake.priority import effective_priority
from vedette.handshake.tables.rows import WatchRow

__all__ = [
    "HEALTH_KEYS",
    "exclusion_record",
    "format_remaining",
    "health_record",
    "pattern_record",
    "watch_record",
]

HEALTH_KEYS = (
    "watch_id",
    "path",
    "collection",
    "enabled",
    "health_status",
    "consecutive_errors",
    "total_errors",
    "last_error_at",
    "last_error_message",
    "backoff_until",
    "last_success_at",
)
"""Keys of `wqm watch health --format json`. Programs rely on these names."""


def health_record(row: WatchRow) -> dict[str, Any]:
    health = row.health
    return {
        "watch_id": row.watch_id,
        "path": row.config.path,
        "collection": row.config.collection,
        "enabled": health.enabled,
        "health_status": str(health.health_status),
        "consecutive_errors": health.consecutive_errors,
        "total_errors": health.total_errors,
        "last_error_at": health.last_error_at,
        "last_error_message": health.last_error_message,
        "backoff_until": health.backoff_until,
        "last_success_at": health.last_success_at,
        "circuit_state": str(health.circuit.state),
        "disabled_by": None if health.disabled_by is None else str(health.disabled_by),
    }


def watch_record(row: WatchRow, degradation: Degradation, now: datetime) -> dict[str, Any]:
    """Return configuration, health and state of a watch."""
    config = asdict(row.config)
    return {
        **config,
        **health_record(row),
        "watch_type": str(row.config.watch_type),
        "effective_priority": effective_priority(row.config.watch_priority, row.health, now),
        "paused_by_load": row.watch_id in degradation.paused_watch_ids,
        "paused_at": row.paused_at,
        "last_scan": row.last_scan,
        "rescan_requested_at": row.rescan_requested_at,
        "watch_mode": row.watch_mode,
        "unavailable_since": row.unavailable_since,
        "unavailable_reason": row.unavailable_reason,
        "state": state_of(row, degradation),
    }


def state_of(row: WatchRow, degradation: Degradation) -> str:
    """Return `active`, or the strongest reason why the watch does not run."""
    if row.unavailable_since is not None:
        return "unavailable"
    if not row.health.enabled:
        return f"disabled by {row.health.disabled_by}"
    if row.paused_at is not None:
        return "paused"
    return "paused by load" if row.watch_id in degradation.paused_watch_ids else "active"


def pattern_record(pattern: ErrorPattern) -> dict[str, Any]:
    return {
        "pattern_type": str(pattern.key.type),
        "pattern_key": pattern.key.value,
        "occurrence_count": pattern.occurrence_count,
        "confidence_score": round(pattern.confidence_score, 2),
        "is_systematic": pattern.is_systematic,
        "first_seen_at": pattern.first_seen_at,
        "last_seen_at": pattern.last_seen_at,
        "last_message": pattern.last_message,
        "action": ADVICE_BY_PATTERN[pattern.key.type],
    }


def exclusion_record(exclusion: Exclusion) -> dict[str, Any]:
    return {
        "type": str(exclusion.type),
        "value": exclusion.value,
        "reason": exclusion.reason,
        "error_count": exclusion.error_count,
        "created_at": exclusion.created_at,
        "expires_at": exclusion.expires_at,
        "is_permanent": exclusion.is_permanent,
    }


def format_remaining(until: datetime | None, now: datetime) -> str:
    """Return `2h`, `5m`, `30s`, `expired`, or `-` without a time."""
    if until is None:
        return "-"
    seconds = int((until - now).total_seconds())
    if seconds <= 0:
        return "expired"
    for size, unit in ((3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
