"""The breaker of the sink: when Qdrant or the disk is down the queue pauses and probes, and no watch is punished.

The same machine as a watch's circuit with other numbers: five failures in a row open it, a probe goes out every 30
seconds, and the first that succeeds closes it (spec/handshake.md, 3.6). Tasks that met the outage go back to the queue;
their attempts are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from vedette.handshake.circuit_breaker import Circuit, CircuitState, after_cooldown, cools_at
from vedette.handshake.config import CircuitConfig

__all__ = ["SINK_CIRCUIT", "Flow", "flow"]

SINK_CIRCUIT = CircuitConfig(
    consecutive_errors=5,
    errors_per_window=None,
    cooldown_seconds=30.0,
    half_open_successes=1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """How many tasks may be taken from the queue now."""

    circuit: Circuit
    tasks: int
    until: datetime | None = None
    """When to ask again; None when nothing has to be waited for."""


def flow(
    circuit: Circuit, wanted: int, in_flight: int, now: datetime, config: CircuitConfig = SINK_CIRCUIT
) -> Flow:
    """All that are wanted while the sink is up, none while it is down, one to probe when the cooldown is over."""
    tried = after_cooldown(circuit, now, config)
    match tried.state:
        case CircuitState.CLOSED:
            return Flow(circuit=tried, tasks=wanted)
        case CircuitState.HALF_OPEN:
            return Flow(circuit=tried, tasks=min(wanted, 1) if in_flight == 0 else 0)
        case CircuitState.OPEN:
            return Flow(circuit=tried, tasks=0, until=cools_at(tried, config))
