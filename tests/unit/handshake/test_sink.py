"""A sink that is down stops the queue, is probed, and starts it again; no watch notices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from vedette.handshake.circuit_breaker import Circuit, CircuitState, after_failure, after_success
from vedette.handshake.sink import SINK_CIRCUIT, flow
from vedette.handshake.throughput import Throughput

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def down() -> Circuit:
    circuit = Circuit()
    for _ in range(5):
        assert flow(circuit, 10, 0, NOW).tasks == 10
        circuit = after_failure(circuit, NOW, SINK_CIRCUIT)
    return circuit


def test_the_queue_pauses_probes_and_goes_on() -> None:
    paused = flow(down(), 10, 0, NOW)
    assert (paused.tasks, paused.until) == (0, NOW + timedelta(seconds=30))
    probing = flow(paused.circuit, 10, 0, NOW + timedelta(seconds=30))
    assert (probing.circuit.state, probing.tasks) == (CircuitState.HALF_OPEN, 1)
    assert flow(probing.circuit, 10, 1, NOW + timedelta(seconds=31)).tasks == 0
    up = after_success(probing.circuit, NOW + timedelta(seconds=31), SINK_CIRCUIT)
    assert flow(up, 10, 0, NOW + timedelta(seconds=31)).tasks == 10


def test_a_probe_that_fails_waits_another_thirty_seconds() -> None:
    later = NOW + timedelta(seconds=30)
    circuit = after_failure(flow(down(), 1, 0, later).circuit, later, SINK_CIRCUIT)
    assert flow(circuit, 10, 0, later).until == later + timedelta(seconds=30)


def test_a_success_in_between_keeps_it_closed() -> None:
    circuit = Circuit()
    for _ in range(50):
        for _ in range(4):
            circuit = after_failure(circuit, NOW, SINK_CIRCUIT)
        circuit = after_success(circuit, NOW, SINK_CIRCUIT)
    assert circuit.state is CircuitState.CLOSED


def test_throughput_is_judged_only_after_a_window_full_of_work() -> None:
    seen = Throughput(60)
    assert seen.rate(NOW) is None
    seen.looked(5, NOW)
    for second in range(60):
        seen.completed(2, NOW + timedelta(seconds=second))
        assert seen.rate(NOW + timedelta(seconds=second)) is None
    assert seen.rate(NOW + timedelta(seconds=60)) == (120 - 2) / 60
    seen.looked(0, NOW + timedelta(seconds=61))
    assert seen.rate(NOW + timedelta(seconds=61)) is None, "an idle queue is not slow"
    seen.looked(1, NOW + timedelta(seconds=62))
    assert seen.rate(NOW + timedelta(seconds=121)) is None
    assert seen.rate(NOW + timedelta(seconds=122)) == 0.0
