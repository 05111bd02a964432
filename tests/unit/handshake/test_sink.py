"""A sink that is down stops the queue, is probed, and starts it again; no watch notices."""

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
from vedette.handshake.degradation import ThroughputMeter

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def down() -> CircuitBreaker:
    circuit = CircuitBreaker()
    for _ in range(5):
        assert admit_tasks(circuit, 10, 0, NOW).max_tasks == 10
        circuit = record_breaker_failure(circuit, NOW, SINK_BREAKER)
    return circuit


def test_the_queue_pauses_probes_and_goes_on() -> None:
    paused = admit_tasks(down(), 10, 0, NOW)
    assert (paused.max_tasks, paused.retry_at) == (0, NOW + timedelta(seconds=30))
    probing = admit_tasks(paused.circuit, 10, 0, NOW + timedelta(seconds=30))
    assert (probing.circuit.state, probing.max_tasks) == (CircuitState.HALF_OPEN, 1)
    assert admit_tasks(probing.circuit, 10, 1, NOW + timedelta(seconds=31)).max_tasks == 0
    up = record_breaker_success(probing.circuit, NOW + timedelta(seconds=31), SINK_BREAKER)
    assert admit_tasks(up, 10, 0, NOW + timedelta(seconds=31)).max_tasks == 10


def test_a_probe_that_fails_waits_another_thirty_seconds() -> None:
    later = NOW + timedelta(seconds=30)
    circuit = record_breaker_failure(admit_tasks(down(), 1, 0, later).circuit, later, SINK_BREAKER)
    assert admit_tasks(circuit, 10, 0, later).retry_at == later + timedelta(seconds=30)


def test_a_success_in_between_keeps_it_closed() -> None:
    circuit = CircuitBreaker()
    for _ in range(50):
        for _ in range(4):
            circuit = record_breaker_failure(circuit, NOW, SINK_BREAKER)
        circuit = record_breaker_success(circuit, NOW, SINK_BREAKER)
    assert circuit.state is CircuitState.CLOSED


def test_throughput_is_judged_only_after_a_window_full_of_work() -> None:
    seen = ThroughputMeter(60)
    assert seen.rate(NOW) is None
    seen.observe_backlog(5, NOW)
    for second in range(60):
        seen.add_completed(2, NOW + timedelta(seconds=second))
        assert seen.rate(NOW + timedelta(seconds=second)) is None
    assert seen.rate(NOW + timedelta(seconds=60)) == (120 - 2) / 60
    seen.observe_backlog(0, NOW + timedelta(seconds=61))
    assert seen.rate(NOW + timedelta(seconds=61)) is None, "an idle queue is not slow"
    seen.observe_backlog(1, NOW + timedelta(seconds=62))
    assert seen.rate(NOW + timedelta(seconds=121)) is None
    assert seen.rate(NOW + timedelta(seconds=122)) == 0.0
