"""The circuit breaker with the limits of the sink."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from vedette.handshake.circuit_breaker import (
    SINK_BREAKER,
    CircuitBreaker,
    CircuitState,
    admit_tasks,
    record_breaker_failure,
    record_breaker_success,
)

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def open_breaker() -> CircuitBreaker:
    circuit = CircuitBreaker()
    for _ in range(5):
        assert admit_tasks(circuit, 10, 0, NOW).max_tasks == 10
        circuit = record_breaker_failure(circuit, NOW, SINK_BREAKER)
    return circuit


def test_open_breaker_admits_one_probe_after_the_cooldown() -> None:
    paused = admit_tasks(open_breaker(), 10, 0, NOW)
    assert (paused.max_tasks, paused.retry_at) == (0, NOW + timedelta(seconds=30))
    probing = admit_tasks(paused.circuit, 10, 0, NOW + timedelta(seconds=30))
    assert (probing.circuit.state, probing.max_tasks) == (CircuitState.HALF_OPEN, 1)
    assert admit_tasks(probing.circuit, 10, 1, NOW + timedelta(seconds=31)).max_tasks == 0
    up = record_breaker_success(probing.circuit, NOW + timedelta(seconds=31), SINK_BREAKER)
    assert admit_tasks(up, 10, 0, NOW + timedelta(seconds=31)).max_tasks == 10


def test_failed_probe_restarts_the_cooldown() -> None:
    later = NOW + timedelta(seconds=30)
    circuit = record_breaker_failure(admit_tasks(open_breaker(), 1, 0, later).circuit, later, SINK_BREAKER)
    assert admit_tasks(circuit, 10, 0, later).retry_at == later + timedelta(seconds=30)


def test_success_resets_the_consecutive_failures() -> None:
    circuit = CircuitBreaker()
    for _ in range(50):
        for _ in range(4):
            circuit = record_breaker_failure(circuit, NOW, SINK_BREAKER)
        circuit = record_breaker_success(circuit, NOW, SINK_BREAKER)
    assert circuit.state is CircuitState.CLOSED
