"""The health of one folder watch or source.

Theory of operation. Consecutive errors lower the health of a watch: from `degraded_at` (1) it is degraded, from
`backoff_at` (3) it waits between files, and when its circuit breaker opens (20 consecutive errors, or 50 within an
hour) it is disabled. One success clears the consecutive errors. Health then improves one step at a time: backoff to
degraded at the first success, degraded to healthy after five. An open circuit sets `enabled` to False and `disabled_by`
to "circuit". After the cooldown the circuit is half open: the status is backoff, and one probe runs at a time. Three
successful probes restore the watch as degraded. `reset_errors` (wqm watch reset-errors) closes the circuit and keeps
`enabled`; `enable` enables the watch again, also one that a user disabled.

              error 1-2            error 3-19            circuit opens
    healthy ───────────▶ degraded ───────────▶ backoff ────────────────▶ disabled
       ▲  ◀───────────────   ▲ ◀───────────────   ▲  ◀──────────────────    │
       │   5 successes       │     1 success      │    cooldown ended        │
       └─────────────────────┴── reset, enable ───┴──────────────────────────┘

`health_status` says how the files of a watch fare; `enabled` says whether the watch is active. A user may disable a
healthy watch. Only failures in the fault domain of the watch count (`vedette.handshake.failures`); an unavailable sink
does not. docs/design/decisions/0051-handshake-health-and-breakers.md has the reasons for the thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from random import Random

from vedette.handshake.circuit_breaker import (
    CircuitBreaker,
    CircuitState,
    cooldown_ends_at,
    end_breaker_cooldown,
    record_breaker_failure,
    record_breaker_success,
    reset_breaker,
)
from vedette.handshake.config import HealthConfig
from vedette.handshake.retry import backoff_delay

__all__ = [
    "TRANSITIONS",
    "Admission",
    "AdmissionVerdict",
    "DisabledBy",
    "HealthEvent",
    "HealthStatus",
    "WatchHealth",
    "check_admission",
    "disable",
    "enable",
    "end_cooldown",
    "record_error",
    "record_success",
    "reset_errors",
]


class HealthStatus(StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    BACKOFF = "backoff"
    DISABLED = "disabled"


class HealthEvent(StrEnum):
    ERROR_BELOW_BACKOFF = "error below backoff"
    """An error with fewer than `backoff_at` consecutive errors."""
    ERROR_AT_BACKOFF = "error at backoff"
    """An error with at least `backoff_at` consecutive errors and the circuit closed."""
    CIRCUIT_OPENED = "circuit opened"
    """An error that opens the circuit, or that arrives while it is open."""
    SUCCESS = "success"
    RECOVERED = "recovered"
    """The success number `success_reset_count` in a row, with the circuit closed."""
    COOLDOWN_ENDED = "cooldown ended"
    CIRCUIT_CLOSED = "circuit closed"
    """The last probe succeeded."""
    RESET = "reset"


TRANSITIONS: Mapping[tuple[HealthStatus, HealthEvent], HealthStatus] = {
    (HealthStatus.HEALTHY, HealthEvent.ERROR_BELOW_BACKOFF): HealthStatus.DEGRADED,
    # Possible with custom thresholds
    (HealthStatus.HEALTHY, HealthEvent.ERROR_AT_BACKOFF): HealthStatus.BACKOFF,
    # The 50th error within an hour may be the first consecutive one
    (HealthStatus.HEALTHY, HealthEvent.CIRCUIT_OPENED): HealthStatus.DISABLED,
    (HealthStatus.HEALTHY, HealthEvent.SUCCESS): HealthStatus.HEALTHY,
    (HealthStatus.HEALTHY, HealthEvent.RECOVERED): HealthStatus.HEALTHY,
    (HealthStatus.HEALTHY, HealthEvent.RESET): HealthStatus.HEALTHY,
    (HealthStatus.DEGRADED, HealthEvent.ERROR_BELOW_BACKOFF): HealthStatus.DEGRADED,
    (HealthStatus.DEGRADED, HealthEvent.ERROR_AT_BACKOFF): HealthStatus.BACKOFF,
    (HealthStatus.DEGRADED, HealthEvent.CIRCUIT_OPENED): HealthStatus.DISABLED,
    (HealthStatus.DEGRADED, HealthEvent.SUCCESS): HealthStatus.DEGRADED,
    (HealthStatus.DEGRADED, HealthEvent.RECOVERED): HealthStatus.HEALTHY,
    (HealthStatus.DEGRADED, HealthEvent.RESET): HealthStatus.HEALTHY,
    (HealthStatus.BACKOFF, HealthEvent.ERROR_AT_BACKOFF): HealthStatus.BACKOFF,
    (HealthStatus.BACKOFF, HealthEvent.CIRCUIT_OPENED): HealthStatus.DISABLED,
    (HealthStatus.BACKOFF, HealthEvent.SUCCESS): HealthStatus.DEGRADED,
    # With success_reset_count = 1: still one step at a time
    (HealthStatus.BACKOFF, HealthEvent.RECOVERED): HealthStatus.DEGRADED,
    (HealthStatus.BACKOFF, HealthEvent.CIRCUIT_CLOSED): HealthStatus.DEGRADED,
    (HealthStatus.BACKOFF, HealthEvent.RESET): HealthStatus.HEALTHY,
    (HealthStatus.DISABLED, HealthEvent.CIRCUIT_OPENED): HealthStatus.DISABLED,
    # A file that was in flight when the circuit opened
    (HealthStatus.DISABLED, HealthEvent.SUCCESS): HealthStatus.DISABLED,
    (HealthStatus.DISABLED, HealthEvent.COOLDOWN_ENDED): HealthStatus.BACKOFF,
    (HealthStatus.DISABLED, HealthEvent.RESET): HealthStatus.HEALTHY,
}


class DisabledBy(StrEnum):
    CIRCUIT = "circuit"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchHealth:
    """The health of one folder watch or source."""

    health_status: HealthStatus = HealthStatus.HEALTHY
    consecutive_successes: int = 0
    total_errors: int = 0
    """Never reset, and not used for any decision."""
    last_error_at: datetime | None = None
    last_error_message: str | None = None
    backoff_until: datetime | None = None
    """Set in backoff and disabled only. While disabled, the end of the cooldown."""
    last_success_at: datetime | None = None
    circuit: CircuitBreaker = field(default_factory=CircuitBreaker)
    enabled: bool = True
    disabled_by: DisabledBy | None = None
    """None if and only if the watch is enabled."""

    @property
    def consecutive_errors(self) -> int:
        return self.circuit.consecutive_errors

    def validate(self, config: HealthConfig) -> None:
        """Raise AssertionError if no sequence of events leads to this state."""
        self.circuit.validate(config.effective_circuit)
        assert self.enabled == (self.disabled_by is None), self
        assert self.total_errors >= self.consecutive_errors, self
        assert (self.circuit.state is CircuitState.OPEN) == (self.health_status is HealthStatus.DISABLED), (
            self
        )
        assert self.circuit.state is CircuitState.CLOSED or not self.enabled, self
        assert (
            self.circuit.state is not CircuitState.HALF_OPEN or self.health_status is HealthStatus.BACKOFF
        ), self
        assert self.backoff_until is None or self.health_status in {
            HealthStatus.BACKOFF,
            HealthStatus.DISABLED,
        }, self
        assert not (self.consecutive_errors and self.consecutive_successes), self
        if self.health_status is HealthStatus.HEALTHY:
            assert self.consecutive_errors < config.degraded_at, self
        if self.circuit.state is CircuitState.CLOSED:
            assert (self.consecutive_errors >= config.backoff_at) == (
                self.health_status is HealthStatus.BACKOFF
            ), self


def record_error(
    health: WatchHealth,
    now: datetime,
    message: str,
    config: HealthConfig,
    rng: Random,
    *,
    network: bool = False,
) -> WatchHealth:
    """Record a failed file whose failure is charged to the watch."""
    circuit = record_breaker_failure(health.circuit, now, config.effective_circuit)
    worse = replace(
        health,
        circuit=circuit,
        consecutive_successes=0,
        total_errors=health.total_errors + 1,
        last_error_at=now,
        last_error_message=message,
    )
    if circuit.state is not CircuitState.CLOSED:
        return _open_circuit(worse, config)
    errors = circuit.consecutive_errors
    if errors < config.degraded_at:
        return worse
    if errors < config.backoff_at:
        return _transition(worse, HealthEvent.ERROR_BELOW_BACKOFF)
    delay = backoff_delay(errors, config.backoff, rng, network=network)
    return replace(_transition(worse, HealthEvent.ERROR_AT_BACKOFF), backoff_until=now + delay)


def record_success(health: WatchHealth, now: datetime, config: HealthConfig) -> WatchHealth:
    """Record a processed file. A file that was in flight before `backoff_until` counts the same."""
    circuit = record_breaker_success(health.circuit, now, config.effective_circuit)
    better = replace(
        health,
        circuit=circuit,
        consecutive_successes=health.consecutive_successes + 1,
        last_success_at=now,
    )
    before, after = health.circuit.state, circuit.state
    if before is CircuitState.HALF_OPEN:
        if after is CircuitState.HALF_OPEN:
            return better  # still in backoff; more probes follow
        restored = _transition(better, HealthEvent.CIRCUIT_CLOSED)
        by_user = health.disabled_by is DisabledBy.USER
        return restored if by_user else replace(restored, enabled=True, disabled_by=None)
    enough = after is CircuitState.CLOSED and better.consecutive_successes >= config.success_reset_count
    return _transition(better, HealthEvent.RECOVERED if enough else HealthEvent.SUCCESS)


def end_cooldown(health: WatchHealth, now: datetime, config: HealthConfig) -> WatchHealth:
    """Return the watch half open if its circuit, not a user, disabled it and the cooldown has ended."""
    if health.disabled_by is not DisabledBy.CIRCUIT:
        return health
    circuit = end_breaker_cooldown(health.circuit, now, config.effective_circuit)
    if circuit.state is health.circuit.state:
        return health
    return _transition(replace(health, circuit=circuit), HealthEvent.COOLDOWN_ENDED)


def reset_errors(health: WatchHealth, now: datetime) -> WatchHealth:
    """Make the watch healthy and close its circuit. Totals, the last error and `enabled` are kept."""
    return _transition(
        replace(health, circuit=reset_breaker(health.circuit, now), consecutive_successes=0),
        HealthEvent.RESET,
    )


def enable(health: WatchHealth, now: datetime) -> WatchHealth:
    """Enable the watch. An open circuit is reset; a backoff without an open circuit is kept."""
    closed = health.circuit.state is CircuitState.CLOSED
    return replace(health if closed else reset_errors(health, now), enabled=True, disabled_by=None)


def disable(health: WatchHealth) -> WatchHealth:
    """Disable the watch until a user enables it. No probe runs meanwhile."""
    return replace(health, enabled=False, disabled_by=DisabledBy.USER)


class AdmissionVerdict(StrEnum):
    PROCEED = "proceed"
    PROBE = "probe"
    """One file, to test whether the circuit may close."""
    WAIT = "wait"
    """Not yet: see `Admission.retry_at`."""
    REFUSED = "refused"
    """Not before a user enables the watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether files of a watch may be processed now. Refused files are deferred, never dropped."""

    verdict: AdmissionVerdict
    reason: str
    retry_at: datetime | None = None

    @property
    def is_allowed(self) -> bool:
        return self.verdict in {AdmissionVerdict.PROCEED, AdmissionVerdict.PROBE}


def check_admission(health: WatchHealth, now: datetime, in_flight: int, config: HealthConfig) -> Admission:
    """Decide whether a file of the watch may be processed.

    Call `end_cooldown` first, so that a circuit whose cooldown has ended is half open. `in_flight` is the number of the
    watch's files that are being processed.
    """
    if health.disabled_by is DisabledBy.USER:
        return Admission(verdict=AdmissionVerdict.REFUSED, reason="disabled by a user")
    match health.circuit.state:
        case CircuitState.OPEN:
            moment = cooldown_ends_at(health.circuit, config.effective_circuit)
            return Admission(verdict=AdmissionVerdict.WAIT, reason="the circuit is open", retry_at=moment)
        case CircuitState.HALF_OPEN if in_flight > 0:
            return Admission(verdict=AdmissionVerdict.WAIT, reason="a probe is in flight")
        case CircuitState.HALF_OPEN:
            return Admission(verdict=AdmissionVerdict.PROBE, reason="the circuit is half open")
    if not health.enabled:
        return Admission(
            verdict=AdmissionVerdict.REFUSED, reason="the circuit was reset; the watch is not enabled"
        )
    if health.backoff_until is not None and now < health.backoff_until:
        return Admission(verdict=AdmissionVerdict.WAIT, reason="in backoff", retry_at=health.backoff_until)
    return Admission(verdict=AdmissionVerdict.PROCEED, reason=health.health_status)


def _open_circuit(health: WatchHealth, config: HealthConfig) -> WatchHealth:
    opened = replace(
        _transition(health, HealthEvent.CIRCUIT_OPENED),
        backoff_until=cooldown_ends_at(health.circuit, config.effective_circuit),
    )
    by_user = health.disabled_by is DisabledBy.USER
    return opened if by_user else replace(opened, enabled=False, disabled_by=DisabledBy.CIRCUIT)


def _transition(health: WatchHealth, event: HealthEvent) -> WatchHealth:
    status = TRANSITIONS[health.health_status, event]
    waits = status is HealthStatus.DISABLED or event is HealthEvent.ERROR_AT_BACKOFF
    return replace(health, health_status=status, backoff_until=health.backoff_until if waits else None)
