"""The breaker of the sink: when Qdrant or the disk is down the queue pauses and probes, and no watch is punished.

The same machine as a watch's circuit with other numbers: five failures in a row open it, a probe goes out every 30
seconds, and the first that succeeds closes it (spec/handshake.md, 3.6). Tasks that met the outage go back to the queue;
their attempts are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from vedette.handshake.circuit_breaker import (
    CircuitBreaker,
    CircuitState,
    cooldown_ends_at,
    end_breaker_cooldown,
)
from vedette.handshake.config import CircuitConfig

__all__ = ["SINK_BREAKER", "SinkAdmission", "admit_tasks"]

SINK_BREAKER = CircuitConfig(
    consecutive_errors=5,
    errors_per_window=None,
    cooldown_seconds=30.0,
    half_open_successes=1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkAdmission:
    """How many tasks may be taken from the queue now."""

    circuit: CircuitBreaker
    max_tasks: int
    retry_at: datetime | None = None
    """When to ask again; None when nothing has to be waited for."""


def admit_tasks(
    circuit: CircuitBreaker, wanted: int, in_flight: int, now: datetime, config: CircuitConfig = SINK_BREAKER
) -> SinkAdmission:
    """All that are wanted while the sink is up, none while it is down, one to probe when the cooldown is over."""
    tried = end_breaker_cooldown(circuit, now, config)
    match tried.state:
        case CircuitState.CLOSED:
            return SinkAdmission(circuit=tried, max_tasks=wanted)
        case CircuitState.HALF_OPEN:
            return SinkAdmission(circuit=tried, max_tasks=min(wanted, 1) if in_flight == 0 else 0)
        case CircuitState.OPEN:
            return SinkAdmission(circuit=tried, max_tasks=0, retry_at=cooldown_ends_at(tried, config))
