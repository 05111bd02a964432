"""A circuit breaker: seeds/watch-queue-handshake.md, Circuit Breaker Pattern.

Theory of operation. Closed, work flows and errors are counted: those in a row, and those within the window. When either
count reaches its bound the circuit opens and nothing flows. After the cooldown it is half open: one trial at a time. So
many trials in a row that succeed close it and forget what was counted; one that fails opens it again, and the cooldown
starts anew. What was already under way when it opened is counted, and moves nothing.

                  tripped                       cooled
      closed ───────────────▶ open ─────────────────────────▶ half_open
        ▲                      ▲   failed trial                 │   │
        │                      └────────────────────────────────┘   │ trial passed (not the last)
        └───────────── last trial passed; reset from anywhere ──────┘

The same machine serves a watch (its own files fail) and the sink (Qdrant or the disk fails); only the numbers differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from vedette.handshake.config import CircuitConfig

__all__ = [
    "TRANSITIONS",
    "CircuitBreaker",
    "CircuitEvent",
    "CircuitState",
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
    FAILED = "failed"
    """An error below the bounds."""
    TRIPPED = "tripped"
    """An error that reaches one."""
    SUCCEEDED = "succeeded"
    PASSED = "passed"
    """The success that completes the trials."""
    COOLED = "cooled"
    RESET = "reset"


C, S = CircuitState, CircuitEvent

TRANSITIONS: Mapping[tuple[CircuitState, CircuitEvent], CircuitState] = {
    (C.CLOSED, S.FAILED): C.CLOSED,
    (C.CLOSED, S.TRIPPED): C.OPEN,
    (C.CLOSED, S.SUCCEEDED): C.CLOSED,
    (C.CLOSED, S.RESET): C.CLOSED,
    (C.OPEN, S.FAILED): C.OPEN,
    (C.OPEN, S.TRIPPED): C.OPEN,
    (C.OPEN, S.SUCCEEDED): C.OPEN,
    (C.OPEN, S.COOLED): C.HALF_OPEN,
    (C.OPEN, S.RESET): C.CLOSED,
    (C.HALF_OPEN, S.FAILED): C.OPEN,
    (C.HALF_OPEN, S.TRIPPED): C.OPEN,
    (C.HALF_OPEN, S.SUCCEEDED): C.HALF_OPEN,
    (C.HALF_OPEN, S.PASSED): C.CLOSED,
    (C.HALF_OPEN, S.RESET): C.CLOSED,
}
"""What is not here cannot happen: nothing passes a closed circuit's trials, and only an open one cools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    state: CircuitState = CircuitState.CLOSED
    consecutive_errors: int = 0
    error_times: tuple[datetime, ...] = ()
    """Errors within the window, oldest first; at most `errors_per_window`."""
    opened_at: datetime | None = None
    """None exactly while it is closed."""
    passed_trials: int = 0
    """Successes in a row while half open."""

    def validate(self, config: CircuitConfig) -> None:
        """Raises when this is a state that no sequence of signals leads to."""
        assert (self.opened_at is None) == (self.state is C.CLOSED), self
        assert self.state is C.HALF_OPEN or self.passed_trials == 0, self
        assert self.passed_trials < config.half_open_successes, self
        assert list(self.error_times) == sorted(self.error_times), self
        assert len(self.error_times) <= (config.errors_per_window or 0), self
        if self.state is C.CLOSED:
            assert self.consecutive_errors < config.consecutive_errors, self


def record_breaker_failure(circuit: CircuitBreaker, now: datetime, config: CircuitConfig) -> CircuitBreaker:
    """One more error, counted, and whether it opens the circuit."""
    counted = replace(
        circuit,
        consecutive_errors=circuit.consecutive_errors + 1,
        error_times=_within_window((*circuit.error_times, now), now, config),
    )
    in_a_row = counted.consecutive_errors >= config.consecutive_errors
    in_window = config.errors_per_window is not None and len(counted.error_times) >= config.errors_per_window
    return _transition(counted, S.TRIPPED if in_a_row or in_window else S.FAILED, now)


def record_breaker_success(circuit: CircuitBreaker, now: datetime, config: CircuitConfig) -> CircuitBreaker:
    """Errors in a row end here; half open, this is one trial passed."""
    calmed = replace(circuit, consecutive_errors=0)
    if circuit.state is not C.HALF_OPEN:
        return _transition(calmed, S.SUCCEEDED, now)
    passed = circuit.passed_trials + 1
    if passed >= config.half_open_successes:
        return _transition(calmed, S.PASSED, now)
    return _transition(replace(calmed, passed_trials=passed), S.SUCCEEDED, now)


def cooldown_ends_at(circuit: CircuitBreaker, config: CircuitConfig) -> datetime | None:
    """When an open circuit may be tried; None when it is not open."""
    if circuit.state is not C.OPEN or circuit.opened_at is None:
        return None
    return circuit.opened_at + timedelta(seconds=config.cooldown_seconds)


def end_breaker_cooldown(circuit: CircuitBreaker, now: datetime, config: CircuitConfig) -> CircuitBreaker:
    """Half open if the cooldown is over, else as it was."""
    moment = cooldown_ends_at(circuit, config)
    return circuit if moment is None or now < moment else _transition(circuit, S.COOLED, now)


def reset_breaker(circuit: CircuitBreaker, now: datetime) -> CircuitBreaker:
    """Closed by hand, with nothing counted."""
    return _transition(circuit, S.RESET, now)


def _transition(circuit: CircuitBreaker, signal: CircuitEvent, now: datetime) -> CircuitBreaker:
    state = TRANSITIONS[circuit.state, signal]
    if state is C.CLOSED:
        return (
            replace(circuit, state=state, opened_at=None, passed_trials=0)
            if signal in _COUNTED
            else CircuitBreaker()
        )
    opens = state is C.OPEN and circuit.state is not C.OPEN
    return replace(
        circuit,
        state=state,
        opened_at=now if opens else circuit.opened_at,
        passed_trials=circuit.passed_trials if state is C.HALF_OPEN else 0,
    )


_COUNTED = frozenset({S.FAILED, S.SUCCEEDED})
"""Signals that leave a closed circuit's counts alone; the others forget them."""


def _within_window(times: tuple[datetime, ...], now: datetime, config: CircuitConfig) -> tuple[datetime, ...]:
    if config.errors_per_window is None:
        return ()
    start = now - timedelta(seconds=config.window_seconds)
    # Sorted: a clock that was set back must not make the window forget what it holds.
    return tuple(sorted(moment for moment in times if moment > start))[-config.errors_per_window :]
