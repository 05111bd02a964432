"""A circuit breaker, and the admission of tasks to the sink.

Theory of operation. While the breaker is closed, work proceeds and errors are counted: consecutive errors, and errors
within a time window. When either count reaches its limit, the breaker opens and nothing proceeds. After the cooldown it
is half open and admits one probe at a time. Enough successful probes in a row close it and clear the counts. A failed
probe opens it again and restarts the cooldown. Work that was in flight when the breaker opened is counted but changes
no state.

             THRESHOLD_REACHED              COOLDOWN_ENDED
      closed ───────────────▶ open ─────────────────────────▶ half_open
        ▲                      ▲   FAILURE of a probe           │   │
        │                      └────────────────────────────────┘   │ SUCCESS (more probes to come)
        └──────── PROBES_PASSED; RESET from any state ──────────────┘

A folder watch and the sink (vector store and embedder) use the same breaker with different limits. When the sink fails,
tasks return to the queue without a counted attempt, and no folder watch is charged
(docs/design/decisions/0051-handshake-health-and-breakers.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from vedette.handshake.config import CircuitConfig

__all__ = [
    "SINK_BREAKER",
    "TRANSITIONS",
    "CircuitBreaker",
    "CircuitEvent",
    "CircuitState",
    "SinkAdmission",
    "admit_tasks",
    "cooldown_ends_at",
    "end_breaker_cooldown",
    "record_breaker_failure",
    "record_breaker_success",
    "reset_breaker",
]


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitEvent(StrEnum):
    FAILURE = "failure"
    """An error below both limits."""
    THRESHOLD_REACHED = "threshold reached"
    """An error that reaches a limit."""
    SUCCESS = "success"
    PROBES_PASSED = "probes passed"
    """The success that completes the required probes."""
    COOLDOWN_ENDED = "cooldown ended"
    RESET = "reset"


TRANSITIONS: Mapping[tuple[CircuitState, CircuitEvent], CircuitState] = {
    (CircuitState.CLOSED, CircuitEvent.FAILURE): CircuitState.CLOSED,
    (CircuitState.CLOSED, CircuitEvent.THRESHOLD_REACHED): CircuitState.OPEN,
    (CircuitState.CLOSED, CircuitEvent.SUCCESS): CircuitState.CLOSED,
    (CircuitState.CLOSED, CircuitEvent.RESET): CircuitState.CLOSED,
    (CircuitState.OPEN, CircuitEvent.FAILURE): CircuitState.OPEN,
    (CircuitState.OPEN, CircuitEvent.THRESHOLD_REACHED): CircuitState.OPEN,
    (CircuitState.OPEN, CircuitEvent.SUCCESS): CircuitState.OPEN,
    (CircuitState.OPEN, CircuitEvent.COOLDOWN_ENDED): CircuitState.HALF_OPEN,
    (CircuitState.OPEN, CircuitEvent.RESET): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, CircuitEvent.FAILURE): CircuitState.OPEN,
    (CircuitState.HALF_OPEN, CircuitEvent.THRESHOLD_REACHED): CircuitState.OPEN,
    (CircuitState.HALF_OPEN, CircuitEvent.SUCCESS): CircuitState.HALF_OPEN,
    (CircuitState.HALF_OPEN, CircuitEvent.PROBES_PASSED): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, CircuitEvent.RESET): CircuitState.CLOSED,
}
"""Combinations that are not listed cannot occur."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """The state of one breaker. The functions below return the next state."""

    state: CircuitState = CircuitState.CLOSED
    consecutive_errors: int = 0
    error_times: tuple[datetime, ...] = ()
    """Times of the errors within the window, oldest first; at most `errors_per_window`."""
    opened_at: datetime | None = None
    """None if and only if the breaker is closed."""
    successful_probes: int = 0
    """Consecutive successes while half open."""

    def validate(self, config: CircuitConfig) -> None:
        """Raise AssertionError if no sequence of events leads to this state."""
        assert (self.opened_at is None) == (self.state is CircuitState.CLOSED), self
        assert self.state is CircuitState.HALF_OPEN or self.successful_probes == 0, self
        assert self.successful_probes < config.half_open_successes, self
        assert list(self.error_times) == sorted(self.error_times), self
        assert len(self.error_times) <= (config.errors_per_window or 0), self
        if self.state is CircuitState.CLOSED:
            assert self.consecutive_errors < config.consecutive_errors, self


def record_breaker_failure(circuit: CircuitBreaker, now: datetime, config: CircuitConfig) -> CircuitBreaker:
    """Count an error, and open the breaker if a limit is reached."""
    counted = replace(
        circuit,
        consecutive_errors=circuit.consecutive_errors + 1,
        error_times=_within_window((*circuit.error_times, now), now, config),
    )
    consecutive = counted.consecutive_errors >= config.consecutive_errors
    in_window = config.errors_per_window is not None and len(counted.error_times) >= config.errors_per_window
    event = CircuitEvent.THRESHOLD_REACHED if consecutive or in_window else CircuitEvent.FAILURE
    return _transition(counted, event, now)


def record_breaker_success(circuit: CircuitBreaker, now: datetime, config: CircuitConfig) -> CircuitBreaker:
    """Clear the consecutive errors. While half open, count a successful probe."""
    cleared = replace(circuit, consecutive_errors=0)
    if circuit.state is not CircuitState.HALF_OPEN:
        return _transition(cleared, CircuitEvent.SUCCESS, now)
    probes = circuit.successful_probes + 1
    if probes >= config.half_open_successes:
        return _transition(cleared, CircuitEvent.PROBES_PASSED, now)
    return _transition(replace(cleared, successful_probes=probes), CircuitEvent.SUCCESS, now)


def cooldown_ends_at(circuit: CircuitBreaker, config: CircuitConfig) -> datetime | None:
    """When an open breaker admits a probe; None if it is not open."""
    if circuit.state is not CircuitState.OPEN or circuit.opened_at is None:
        return None
    return circuit.opened_at + timedelta(seconds=config.cooldown_seconds)


def end_breaker_cooldown(circuit: CircuitBreaker, now: datetime, config: CircuitConfig) -> CircuitBreaker:
    """Return the breaker half open if its cooldown has ended, else unchanged."""
    moment = cooldown_ends_at(circuit, config)
    return (
        circuit if moment is None or now < moment else _transition(circuit, CircuitEvent.COOLDOWN_ENDED, now)
    )


def reset_breaker(circuit: CircuitBreaker, now: datetime) -> CircuitBreaker:
    """Close the breaker and clear all counts, by request of a user."""
    return _transition(circuit, CircuitEvent.RESET, now)


def _transition(circuit: CircuitBreaker, event: CircuitEvent, now: datetime) -> CircuitBreaker:
    state = TRANSITIONS[circuit.state, event]
    if state is CircuitState.CLOSED:
        return (
            replace(circuit, state=state, opened_at=None, successful_probes=0)
            if event in _KEEPS_COUNTS
            else CircuitBreaker()
        )
    opens = state is CircuitState.OPEN and circuit.state is not CircuitState.OPEN
    return replace(
        circuit,
        state=state,
        opened_at=now if opens else circuit.opened_at,
        successful_probes=circuit.successful_probes if state is CircuitState.HALF_OPEN else 0,
    )


_KEEPS_COUNTS = frozenset({CircuitEvent.FAILURE, CircuitEvent.SUCCESS})
"""Events after which a closed breaker keeps its counts. The other events clear them."""


def _within_window(times: tuple[datetime, ...], now: datetime, config: CircuitConfig) -> tuple[datetime, ...]:
    if config.errors_per_window is None:
        return ()
    start = now - timedelta(seconds=config.window_seconds)
    # Sorted, so that a clock that was set back does not drop recent errors.
    return tuple(sorted(moment for moment in times if moment > start))[-config.errors_per_window :]


SINK_BREAKER = CircuitConfig(
    consecutive_errors=5,
    errors_per_window=None,
    cooldown_seconds=30.0,
    half_open_successes=1,
)
"""Limits of the sink's breaker: five consecutive failures open it; one probe every 30 seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkAdmission:
    """How many tasks may be claimed from the queue now."""

    circuit: CircuitBreaker
    max_tasks: int
    retry_at: datetime | None = None
    """When to ask again; None if there is nothing to wait for."""


def admit_tasks(
    circuit: CircuitBreaker, wanted: int, in_flight: int, now: datetime, config: CircuitConfig = SINK_BREAKER
) -> SinkAdmission:
    """Admit `wanted` tasks while the breaker is closed, none while it is open, one probe after the cooldown."""
    current = end_breaker_cooldown(circuit, now, config)
    match current.state:
        case CircuitState.CLOSED:
            return SinkAdmission(circuit=current, max_tasks=wanted)
        case CircuitState.HALF_OPEN:
            return SinkAdmission(circuit=current, max_tasks=min(wanted, 1) if in_flight == 0 else 0)
        case CircuitState.OPEN:
            return SinkAdmission(circuit=current, max_tasks=0, retry_at=cooldown_ends_at(current, config))
