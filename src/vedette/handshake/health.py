"""The health of one watch: seeds/watch-queue-handshake.md, Health Status Transitions, as ruled in spec/handshake.md.

Theory of operation. Errors in a row make a watch worse: from `degraded_at` (1) degraded, from `backoff_at` (3) it
backs off, and when its circuit opens (20 in a row or 50 an hour) it is disabled. One success ends the row; health
then climbs a step at a time: backoff ▸ degraded at the first success, degraded ▸ healthy after five. An open
circuit sets `enabled` to False, `disabled_by` to "circuit"; after the cooldown it is half open, which shows as
backoff with one trial in flight; three good trials restore the watch as degraded. `reset` (wqm watch reset-errors)
closes the circuit and keeps `enabled`; `enable` takes a watch up again, whoever disabled it.

              error 1-2            error 3-19            circuit opens
    healthy ───────────▶ degraded ───────────▶ backoff ────────────────▶ disabled
       ▲  ◀───────────────   ▲ ◀───────────────   ▲  ◀──────────────────    │
       │   5 successes       │     1 success      │       cooled             │
       └─────────────────────┴── reset, enable ───┴──────────────────────────┘

Health says how its files fare; `enabled` says whether somebody wants it watched. A user may disable a healthy
watch. Only what its own files did counts here: a sink that is down (`vedette.handshake.failures`) is never charged
to a watch.
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
from vedette.handshake.config import CircuitConfig, HealthConfig
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
    FEW_ERRORS = "few errors"
    """An error, with fewer in a row than `backoff_at`."""
    MANY_ERRORS = "many errors"
    """An error, with at least `backoff_at` in a row and the circuit closed."""
    OPENED = "opened"
    """An error that opens the circuit, or that comes while it is open."""
    SUCCESS = "success"
    ENOUGH_SUCCESSES = "enough successes"
    """The success that makes `success_reset_count` in a row, with the circuit closed."""
    COOLED = "cooled"
    CLOSED = "closed"
    """The last of the trials passed."""
    RESET = "reset"


H, S = HealthStatus, HealthEvent

TRANSITIONS: Mapping[tuple[HealthStatus, HealthEvent], HealthStatus] = {
    (H.HEALTHY, S.FEW_ERRORS): H.DEGRADED,
    (H.HEALTHY, S.MANY_ERRORS): H.BACKOFF,  # with degraded_at and backoff_at of one's own
    (H.HEALTHY, S.OPENED): H.DISABLED,  # the fiftieth error of an hour may be the first in a row
    (H.HEALTHY, S.SUCCESS): H.HEALTHY,
    (H.HEALTHY, S.ENOUGH_SUCCESSES): H.HEALTHY,
    (H.HEALTHY, S.RESET): H.HEALTHY,
    (H.DEGRADED, S.FEW_ERRORS): H.DEGRADED,
    (H.DEGRADED, S.MANY_ERRORS): H.BACKOFF,
    (H.DEGRADED, S.OPENED): H.DISABLED,
    (H.DEGRADED, S.SUCCESS): H.DEGRADED,
    (H.DEGRADED, S.ENOUGH_SUCCESSES): H.HEALTHY,
    (H.DEGRADED, S.RESET): H.HEALTHY,
    (H.BACKOFF, S.MANY_ERRORS): H.BACKOFF,
    (H.BACKOFF, S.OPENED): H.DISABLED,
    (H.BACKOFF, S.SUCCESS): H.DEGRADED,
    (H.BACKOFF, S.ENOUGH_SUCCESSES): H.DEGRADED,  # with success_reset_count = 1: still one step at a time
    (H.BACKOFF, S.CLOSED): H.DEGRADED,
    (H.BACKOFF, S.RESET): H.HEALTHY,
    (H.DISABLED, S.OPENED): H.DISABLED,
    (H.DISABLED, S.SUCCESS): H.DISABLED,  # what was under way when the circuit opened
    (H.DISABLED, S.COOLED): H.BACKOFF,
    (H.DISABLED, S.RESET): H.HEALTHY,
}


class DisabledBy(StrEnum):
    CIRCUIT = "circuit"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchHealth:
    """What happened to a watch: the error tracking fields of the seed, and what the machines need beside them."""

    health_status: HealthStatus = HealthStatus.HEALTHY
    consecutive_successes: int = 0
    total_errors: int = 0
    """Never reset, and never part of a verdict."""
    last_error_at: datetime | None = None
    last_error_message: str | None = None
    backoff_until: datetime | None = None
    """Set in backoff and disabled only (ruling 3); disabled, it is when the circuit has cooled."""
    last_success_at: datetime | None = None
    circuit: CircuitBreaker = field(default_factory=CircuitBreaker)
    enabled: bool = True
    disabled_by: DisabledBy | None = None
    """None exactly while it is enabled."""

    @property
    def consecutive_errors(self) -> int:
        return self.circuit.consecutive_errors

    def validate(self, config: HealthConfig) -> None:
        """Raises when this is a state that no sequence of events leads to."""
        self.circuit.validate(effective_circuit(config))
        assert self.enabled == (self.disabled_by is None), self
        assert self.total_errors >= self.consecutive_errors, self
        assert (self.circuit.state is CircuitState.OPEN) == (self.health_status is H.DISABLED), self
        assert self.circuit.state is CircuitState.CLOSED or not self.enabled, self
        assert self.circuit.state is not CircuitState.HALF_OPEN or self.health_status is H.BACKOFF, self
        assert self.backoff_until is None or self.health_status in {H.BACKOFF, H.DISABLED}, self
        assert not (self.consecutive_errors and self.consecutive_successes), self
        if self.health_status is H.HEALTHY:
            assert self.consecutive_errors < config.degraded_at, self
        if self.circuit.state is CircuitState.CLOSED:
            assert (self.consecutive_errors >= config.backoff_at) == (self.health_status is H.BACKOFF), self


def record_error(
    health: WatchHealth,
    now: datetime,
    message: str,
    config: HealthConfig,
    chance: Random,
    *,
    network: bool = False,
) -> WatchHealth:
    """One of its files failed, and it is the watch's own fault."""
    circuit = record_breaker_failure(health.circuit, now, effective_circuit(config))
    worse = replace(
        health,
        circuit=circuit,
        consecutive_successes=0,
        total_errors=health.total_errors + 1,
        last_error_at=now,
        last_error_message=message,
    )
    if circuit.state is not CircuitState.CLOSED:
        return _opened(worse, config)
    errors = circuit.consecutive_errors
    if errors < config.degraded_at:
        return worse
    if errors < config.backoff_at:
        return _moved(worse, S.FEW_ERRORS)
    delay = backoff_delay(errors, config.backoff, chance, network=network)
    return replace(_moved(worse, S.MANY_ERRORS), backoff_until=now + delay)


def record_success(health: WatchHealth, now: datetime, config: HealthConfig) -> WatchHealth:
    """One of its files was processed. Also before `backoff_until`: what was under way counts the same (ruling 6)."""
    circuit = record_breaker_success(health.circuit, now, effective_circuit(config))
    better = replace(
        health,
        circuit=circuit,
        consecutive_successes=health.consecutive_successes + 1,
        last_success_at=now,
    )
    before, after = health.circuit.state, circuit.state
    if before is CircuitState.HALF_OPEN:
        if after is CircuitState.HALF_OPEN:
            return better  # still backoff, with trials to come
        restored = _moved(better, S.CLOSED)
        by_user = health.disabled_by is DisabledBy.USER
        return restored if by_user else replace(restored, enabled=True, disabled_by=None)
    enough = after is CircuitState.CLOSED and better.consecutive_successes >= config.success_reset_count
    return _moved(better, S.ENOUGH_SUCCESSES if enough else S.SUCCESS)


def end_cooldown(health: WatchHealth, now: datetime, config: HealthConfig) -> WatchHealth:
    """Half open when the cooldown is over and the circuit, not the user, disabled it; else as it was."""
    if health.disabled_by is not DisabledBy.CIRCUIT:
        return health
    circuit = end_breaker_cooldown(health.circuit, now, effective_circuit(config))
    if circuit.state is health.circuit.state:
        return health
    return _moved(replace(health, circuit=circuit), S.COOLED)


def reset_errors(health: WatchHealth, now: datetime) -> WatchHealth:
    """Healthy, circuit closed; totals, the last error and `enabled` stay."""
    return _moved(
        replace(health, circuit=reset_breaker(health.circuit, now), consecutive_successes=0), S.RESET
    )


def enable(health: WatchHealth, now: datetime) -> WatchHealth:
    """Watched again. What its circuit held against it is forgotten; a mere backoff is not."""
    closed = health.circuit.state is CircuitState.CLOSED
    return replace(health if closed else reset_errors(health, now), enabled=True, disabled_by=None)


def disable(health: WatchHealth) -> WatchHealth:
    """Not watched until somebody enables it: no trial runs by itself."""
    return replace(health, enabled=False, disabled_by=DisabledBy.USER)


class AdmissionVerdict(StrEnum):
    PROCEED = "proceed"
    PROBE = "trial"
    """One file, to see whether the circuit may close."""
    WAIT = "wait"
    """Not yet: see `until`."""
    REFUSED = "refused"
    """Not before somebody enables it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether files of a watch may be processed now. What may not is deferred, never dropped."""

    verdict: AdmissionVerdict
    reason: str
    retry_at: datetime | None = None

    @property
    def is_allowed(self) -> bool:
        return self.verdict in {AdmissionVerdict.PROCEED, AdmissionVerdict.PROBE}


def check_admission(health: WatchHealth, now: datetime, in_flight: int, config: HealthConfig) -> Admission:
    """Ask `end_cooldown` first, so that a cooled circuit is half open. `in_flight`: its files under way now."""
    V = AdmissionVerdict
    if health.disabled_by is DisabledBy.USER:
        return Admission(verdict=V.REFUSED, reason="disabled by hand")
    match health.circuit.state:
        case CircuitState.OPEN:
            moment = cooldown_ends_at(health.circuit, effective_circuit(config))
            return Admission(verdict=V.WAIT, reason="its circuit is open", retry_at=moment)
        case CircuitState.HALF_OPEN if in_flight > 0:
            return Admission(verdict=V.WAIT, reason="a trial is under way")
        case CircuitState.HALF_OPEN:
            return Admission(verdict=V.PROBE, reason="its circuit is half open")
    if not health.enabled:
        return Admission(verdict=V.REFUSED, reason="its circuit was reset; it waits to be enabled")
    if health.backoff_until is not None and now < health.backoff_until:
        return Admission(verdict=V.WAIT, reason="it backs off", retry_at=health.backoff_until)
    return Admission(verdict=V.PROCEED, reason=health.health_status)


def _opened(health: WatchHealth, config: HealthConfig) -> WatchHealth:
    opened = replace(
        _moved(health, S.OPENED), backoff_until=cooldown_ends_at(health.circuit, effective_circuit(config))
    )
    by_user = health.disabled_by is DisabledBy.USER
    return opened if by_user else replace(opened, enabled=False, disabled_by=DisabledBy.CIRCUIT)


def _moved(health: WatchHealth, signal: HealthEvent) -> WatchHealth:
    status = TRANSITIONS[health.health_status, signal]
    waits = status is H.DISABLED or signal is S.MANY_ERRORS
    return replace(health, health_status=status, backoff_until=health.backoff_until if waits else None)


def effective_circuit(config: HealthConfig) -> CircuitConfig:
    return (
        config.circuit
        if config.legacy_disable_at is None
        else replace(config.circuit, consecutive_errors=config.legacy_disable_at)
    )
