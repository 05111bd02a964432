"""Conversion between rows of `handshake.db` and records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from vedette.handshake.capacity import Capacity
from vedette.handshake.circuit_breaker import CircuitBreaker, CircuitState
from vedette.handshake.config import WatchFolderConfig, WatchType
from vedette.handshake.degradation import Degradation, DegradationLevel
from vedette.handshake.error_patterns import ErrorPattern, PatternKey, PatternType
from vedette.handshake.exclusions import Exclusion, ExclusionType
from vedette.handshake.health import DisabledBy, HealthStatus, WatchHealth
from vedette.values import timestamp_from_text, timestamp_to_text

__all__ = [
    "CONFIG_COLUMNS",
    "HEALTH_COLUMNS",
    "WatchRow",
    "capacity_from_json",
    "capacity_to_json",
    "circuit_from_json",
    "circuit_to_json",
    "config_values",
    "degradation_from_json",
    "degradation_to_json",
    "exclusion_from_row",
    "health_values",
    "pattern_from_row",
    "timestamp_text",
    "watch_from_row",
]

CONFIG_COLUMNS = (
    "path",
    "collection",
    "patterns",
    "ignore_patterns",
    "auto_ingest",
    "recursive",
    "recursive_depth",
    "debounce_seconds",
    "watch_type",
    "library_name",
    "watch_priority",
)
"""Columns of the configuration. `enabled` is part of the health of an existing watch."""
HEALTH_COLUMNS = (
    "enabled",
    "disabled_by",
    "health_status",
    "consecutive_errors",
    "consecutive_successes",
    "total_errors",
    "last_error_at",
    "last_error_message",
    "backoff_until",
    "last_success_at",
    "circuit_state",
    "circuit_opened_at",
    "circuit_trials",
    "recent_errors",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRow:
    """One row of `watch_folders`."""

    config: WatchFolderConfig
    health: WatchHealth
    created_at: datetime
    updated_at: datetime
    last_scan: datetime | None
    """Time of the last complete scan."""
    paused_at: datetime | None
    """Since when a user paused the watch: changes are recorded but not processed."""
    rescan_requested_at: datetime | None
    watch_mode: str | None
    """`native` or `polling`; None before a daemon has watched the folder."""
    unavailable_since: datetime | None
    unavailable_reason: str | None

    @property
    def watch_id(self) -> str:
        return self.config.watch_id


def timestamp_text(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp_to_text(moment)


def parse_optional_timestamp(text: str | None) -> datetime | None:
    return None if text is None else timestamp_from_text(text)


def parse_timestamp(text: str | None) -> datetime:
    assert text is not None
    return timestamp_from_text(text)


def watch_from_row(row: Mapping[str, Any]) -> WatchRow:
    return WatchRow(
        config=WatchFolderConfig(
            watch_id=row["watch_id"],
            path=row["path"],
            collection=row["collection"],
            patterns=tuple(json.loads(row["patterns"])),
            ignore_patterns=tuple(json.loads(row["ignore_patterns"])),
            auto_ingest=bool(row["auto_ingest"]),
            recursive=bool(row["recursive"]),
            recursive_depth=row["recursive_depth"],
            debounce_seconds=row["debounce_seconds"],
            enabled=bool(row["enabled"]),
            watch_type=WatchType(row["watch_type"]),
            library_name=row["library_name"],
            watch_priority=row["watch_priority"],
        ),
        health=_health_from_row(row),
        created_at=parse_timestamp(row["created_at"]),
        updated_at=parse_timestamp(row["updated_at"]),
        last_scan=parse_optional_timestamp(row["last_scan"]),
        paused_at=parse_optional_timestamp(row["paused_at"]),
        rescan_requested_at=parse_optional_timestamp(row["rescan_requested_at"]),
        watch_mode=row["watch_mode"],
        unavailable_since=parse_optional_timestamp(row["unavailable_since"]),
        unavailable_reason=row["unavailable_reason"],
    )


def _health_from_row(row: Mapping[str, Any]) -> WatchHealth:
    by = row["disabled_by"]
    return WatchHealth(
        health_status=HealthStatus(row["health_status"]),
        consecutive_successes=row["consecutive_successes"],
        total_errors=row["total_errors"],
        last_error_at=parse_optional_timestamp(row["last_error_at"]),
        last_error_message=row["last_error_message"],
        backoff_until=parse_optional_timestamp(row["backoff_until"]),
        last_success_at=parse_optional_timestamp(row["last_success_at"]),
        circuit=CircuitBreaker(
            state=CircuitState(row["circuit_state"]),
            consecutive_errors=row["consecutive_errors"],
            error_times=tuple(timestamp_from_text(text) for text in json.loads(row["recent_errors"])),
            opened_at=parse_optional_timestamp(row["circuit_opened_at"]),
            successful_probes=row["circuit_trials"],
        ),
        enabled=bool(row["enabled"]),
        disabled_by=None if by is None else DisabledBy(by),
    )


def config_values(config: WatchFolderConfig) -> tuple[Any, ...]:
    """Return the values of CONFIG_COLUMNS, in that order."""
    return (
        config.path,
        config.collection,
        json.dumps(config.patterns),
        json.dumps(config.ignore_patterns),
        int(config.auto_ingest),
        int(config.recursive),
        config.recursive_depth,
        config.debounce_seconds,
        str(config.watch_type),
        config.library_name,
        config.watch_priority,
    )


def health_values(health: WatchHealth) -> tuple[Any, ...]:
    """Return the values of HEALTH_COLUMNS, in that order."""
    return (
        int(health.enabled),
        None if health.disabled_by is None else str(health.disabled_by),
        str(health.health_status),
        health.consecutive_errors,
        health.consecutive_successes,
        health.total_errors,
        timestamp_text(health.last_error_at),
        health.last_error_message,
        timestamp_text(health.backoff_until),
        timestamp_text(health.last_success_at),
        str(health.circuit.state),
        timestamp_text(health.circuit.opened_at),
        health.circuit.successful_probes,
        json.dumps([timestamp_to_text(moment) for moment in health.circuit.error_times]),
    )


def pattern_from_row(row: Mapping[str, Any]) -> ErrorPattern:
    return ErrorPattern(
        key=PatternKey(PatternType(row["pattern_type"]), row["pattern_key"]),
        occurrence_count=row["occurrence_count"],
        first_seen_at=parse_timestamp(row["first_seen_at"]),
        last_seen_at=parse_timestamp(row["last_seen_at"]),
        is_systematic=bool(row["is_systematic"]),
        confidence_score=row["confidence_score"],
        last_message=row["last_message"],
    )


def exclusion_from_row(row: Mapping[str, Any]) -> Exclusion:
    return Exclusion(
        type=ExclusionType(row["exclusion_type"]),
        value=row["exclusion_value"],
        reason=row["reason"],
        error_count=row["error_count"],
        created_at=parse_timestamp(row["created_at"]),
        expires_at=parse_optional_timestamp(row["expires_at"]),
        is_permanent=bool(row["is_permanent"]),
    )


def degradation_to_json(state: Degradation) -> str:
    return json.dumps(
        {
            "level": state.level.label,
            "entered_at": timestamp_to_text(state.entered_at),
            "last_check_at": timestamp_text(state.last_check_at),
            "queue_depth": state.queue_depth,
            "throughput": state.throughput,
            "memory_usage": state.memory_usage,
            "paused_watch_ids": state.paused_watch_ids,
            "polling_interval_multiplier": state.polling_interval_multiplier,
            "recovery_step": state.recovery_step,
        }
    )


def degradation_from_json(text: str) -> Degradation:
    record = json.loads(text)
    return Degradation(
        level=DegradationLevel[record["level"].upper()],
        entered_at=timestamp_from_text(record["entered_at"]),
        last_check_at=parse_optional_timestamp(record["last_check_at"]),
        queue_depth=record["queue_depth"],
        throughput=record["throughput"],
        memory_usage=record["memory_usage"],
        paused_watch_ids=tuple(record["paused_watch_ids"]),
        polling_interval_multiplier=record["polling_interval_multiplier"],
        recovery_step=record["recovery_step"],
    )


def circuit_to_json(circuit: CircuitBreaker) -> str:
    return json.dumps(
        {
            "state": circuit.state,
            "consecutive_errors": circuit.consecutive_errors,
            "opened_at": timestamp_text(circuit.opened_at),
            "passed_trials": circuit.successful_probes,
        }
    )


def circuit_from_json(text: str) -> CircuitBreaker:
    record = json.loads(text)
    return CircuitBreaker(
        state=CircuitState(record["state"]),
        consecutive_errors=record["consecutive_errors"],
        opened_at=parse_optional_timestamp(record["opened_at"]),
        successful_probes=record["passed_trials"],
    )


def capacity_to_json(capacity: Capacity) -> str:
    return json.dumps({"held": dict(capacity.tasks_by_watch), "throttling": capacity.throttling})


def capacity_from_json(text: str) -> Capacity:
    record = json.loads(text)
    return Capacity(tasks_by_watch=record["held"], throttling=record["throttling"])
