"""Degradation levels, pauses, recovery and throughput."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.handshake_records import NOW
from vedette.handshake.config import DegradationConfig
from vedette.handshake.degradation import (
    Degradation,
    DegradationLevel,
    LoadObservation,
    ThroughputMeter,
    apply_observation,
    decide_pauses,
    level_for_load,
    polling_multiplier,
)

L = DegradationLevel


PAUSED_UP_TO = {L.NORMAL: -1, L.LIGHT: -1, L.MODERATE: 3, L.SEVERE: 5, L.CRITICAL: 8}


@pytest.mark.parametrize(
    ("depth", "throughput", "memory", "level"),
    [
        (0, None, 0.0, L.NORMAL),
        (999, None, 0.0, L.NORMAL),
        (1_000, None, 0.0, L.LIGHT),
        (2_999, None, 0.0, L.LIGHT),
        (3_000, None, 0.0, L.MODERATE),
        (4_999, None, 0.0, L.MODERATE),
        (5_000, None, 0.0, L.SEVERE),
        (9_999, None, 0.0, L.SEVERE),
        (10_000, None, 0.0, L.CRITICAL),
        (10, 75.0, 0.0, L.NORMAL),
        (10, 74.9, 0.0, L.MODERATE),
        (10, 50.0, 0.0, L.MODERATE),
        (10, 49.9, 0.0, L.SEVERE),
        (1_500, 10.0, 0.0, L.SEVERE),  # a light queue does not hide a slow one
        (10, 0.0, 0.0, L.SEVERE),
        (0, None, 0.69, L.NORMAL),
        (0, None, 0.70, L.MODERATE),
        (0, None, 0.85, L.SEVERE),
        (10_000, None, 0.70, L.CRITICAL),
    ],
)
def test_level_for_load(depth: int, throughput: float | None, memory: float, level: DegradationLevel) -> None:
    load = LoadObservation(queue_depth=depth, throughput=throughput, memory_usage=memory)
    assert level_for_load(load, DegradationConfig()) is level


def test_polling_multipliers() -> None:
    assert [polling_multiplier(level, DegradationConfig()) for level in L] == [1.0, 1.5, 2.0, 4.0, 10.0]


@pytest.mark.parametrize("level", list(L))
def test_watches_are_paused_by_priority(level: DegradationLevel) -> None:
    depth = [0, 1_000, 3_000, 5_000, 10_000][level]
    state = apply_observation(
        Degradation.initial(NOW), LoadObservation(queue_depth=depth), NOW, DegradationConfig()
    )
    watches = [(f"watch-{priority:02}", priority) for priority in range(11)]
    decision = decide_pauses(state, watches, DegradationConfig())
    assert decision.newly_paused == tuple(
        name for name, priority in watches if priority <= PAUSED_UP_TO[level]
    )
    assert decision.resumed == ()
    again = decide_pauses(decision.state, watches[6:], DegradationConfig())
    assert set(again.resumed) == set(decision.newly_paused) & {name for name, _ in watches[:6]}


def test_recovery_takes_a_cooldown_and_three_checks_per_level() -> None:
    config, state = DegradationConfig(), Degradation.initial(NOW)
    state = apply_observation(state, LoadObservation(queue_depth=10_000), NOW, config)
    levels = []
    for second in range(10, 301, 10):
        state = apply_observation(
            state, LoadObservation(queue_depth=0), NOW + timedelta(seconds=second), config
        )
        state.validate(config)
        levels.append(state.level)
    changes = [10 * (at + 1) for at in range(1, len(levels)) if levels[at] != levels[at - 1]]
    assert changes == [80, 160, 240], "60 s at the level, then the third better check"
    assert levels[-1] is L.LIGHT


def test_check_that_is_not_better_restarts_the_count() -> None:
    config, state = DegradationConfig(recovery_cooldown_seconds=0), Degradation.initial(NOW)
    for depth in (5_000, 0, 0, 5_000, 0, 0):
        state = apply_observation(state, LoadObservation(queue_depth=depth), NOW, config)
        assert state.level is L.SEVERE
    assert apply_observation(state, LoadObservation(queue_depth=0), NOW, config).level is L.MODERATE


def test_throughput_needs_a_full_window_with_work() -> None:
    meter = ThroughputMeter(60)
    assert meter.rate(NOW) is None
    meter.observe_backlog(5, NOW)
    for second in range(60):
        meter.add_completed(2, NOW + timedelta(seconds=second))
        assert meter.rate(NOW + timedelta(seconds=second)) is None
    assert meter.rate(NOW + timedelta(seconds=60)) == (120 - 2) / 60
    meter.observe_backlog(0, NOW + timedelta(seconds=61))
    assert meter.rate(NOW + timedelta(seconds=61)) is None, "an idle queue is not slow"
    meter.observe_backlog(1, NOW + timedelta(seconds=62))
    assert meter.rate(NOW + timedelta(seconds=121)) is None
    assert meter.rate(NOW + timedelta(seconds=122)) == 0.0
