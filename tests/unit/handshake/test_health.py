"""Health of a folder watch by errors, successes, cooldown and user requests."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.handshake_records import CONFIG, NOW, failed, succeeded
from vedette.handshake.circuit_breaker import CircuitState
from vedette.handshake.config import HealthConfig
from vedette.handshake.health import (
    AdmissionVerdict,
    DisabledBy,
    HealthStatus,
    WatchHealth,
    check_admission,
    disable,
    enable,
    end_cooldown,
    reset_errors,
)


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        (0, "healthy"),
        (1, "degraded"),
        (2, "degraded"),
        (3, "backoff"),
        (5, "backoff"),
        (6, "backoff"),
        (19, "backoff"),
        (20, "disabled"),
        (25, "disabled"),
    ],
)
def test_health_by_consecutive_errors(errors: int, status: str) -> None:
    health = failed(WatchHealth(), errors)
    assert (health.health_status, health.consecutive_errors, health.total_errors) == (status, errors, errors)


def test_legacy_disable_at_opens_the_circuit_earlier() -> None:
    config = HealthConfig(legacy_disable_at=6)
    found = [failed(WatchHealth(), errors, config=config).health_status for errors in range(8)]
    words = "healthy degraded degraded backoff backoff backoff disabled disabled"
    assert [str(status) for status in found] == words.split()


def test_backoff_until_is_set_in_backoff_and_disabled_only() -> None:
    assert failed(WatchHealth(), 2).backoff_until is None
    waiting = failed(WatchHealth(), 3)
    assert waiting.backoff_until is not None
    assert timedelta(seconds=7.2) <= waiting.backoff_until - NOW <= timedelta(seconds=8.8)
    assert failed(WatchHealth(), 20).backoff_until == NOW + timedelta(hours=1)


def test_recovery_is_one_step_at_a_time() -> None:
    health = failed(WatchHealth(), 4)
    first = succeeded(health)
    assert (first.health_status, first.consecutive_errors, first.backoff_until) == ("degraded", 0, None)
    assert succeeded(first, 3).health_status == "degraded"
    assert succeeded(first, 4).health_status == "healthy"
    assert succeeded(first, 4).total_errors == 4


def test_error_resets_the_count_of_successes() -> None:
    health = succeeded(failed(succeeded(failed(WatchHealth()), 4)), 4)
    assert health.health_status == "degraded"
    assert succeeded(health).health_status == "healthy"


def test_fifty_errors_within_an_hour_open_the_circuit_despite_successes() -> None:
    health = WatchHealth()
    for number in range(49):
        health = succeeded(failed(health, now=NOW + timedelta(minutes=number)))
    assert health.circuit.state is CircuitState.CLOSED
    opened = failed(health, now=NOW + timedelta(minutes=50))
    assert (opened.health_status, opened.enabled, opened.disabled_by) == ("disabled", False, "circuit")
    late = failed(health, now=NOW + timedelta(minutes=61))
    assert late.circuit.state is CircuitState.CLOSED, "the first errors are out of the window"


def test_three_probes_after_the_cooldown_close_the_circuit() -> None:
    opened = failed(WatchHealth(), 20)
    hour = NOW + timedelta(hours=1)
    assert end_cooldown(opened, hour - timedelta(milliseconds=1), CONFIG) is opened
    trying = end_cooldown(opened, hour, CONFIG)
    trying.validate(CONFIG)
    assert (trying.circuit.state, trying.health_status) == ("half_open", "backoff")
    assert check_admission(trying, hour, 0, CONFIG).verdict is AdmissionVerdict.PROBE
    assert check_admission(trying, hour, 1, CONFIG).verdict is AdmissionVerdict.WAIT
    assert succeeded(trying, 2).circuit.state is CircuitState.HALF_OPEN
    restored = succeeded(trying, 3)
    assert (restored.circuit.state, restored.health_status, restored.enabled) == ("closed", "degraded", True)
    assert succeeded(trying, 5).health_status == "healthy"


def test_failed_probe_restarts_the_cooldown() -> None:
    trying = end_cooldown(failed(WatchHealth(), 20), NOW + timedelta(hours=1), CONFIG)
    again = failed(succeeded(trying, 2), now=NOW + timedelta(hours=1, seconds=5))
    assert again.circuit.state is CircuitState.OPEN
    assert again.backoff_until == NOW + timedelta(hours=2, seconds=5)


def test_reset_closes_the_circuit_and_only_enable_enables() -> None:
    opened = failed(WatchHealth(), 20)
    reset = reset_errors(opened, NOW)
    reset.validate(CONFIG)
    assert (reset.health_status, reset.circuit.state, reset.enabled) == ("healthy", "closed", False)
    assert (reset.total_errors, reset.last_error_message, reset.backoff_until) == (20, "it broke", None)
    assert check_admission(reset, NOW, 0, CONFIG).verdict is AdmissionVerdict.REFUSED
    assert check_admission(enable(reset, NOW), NOW, 0, CONFIG).is_allowed
    straight = enable(opened, NOW)
    straight.validate(CONFIG)
    assert (straight.health_status, straight.enabled, straight.disabled_by) == ("healthy", True, None)


def test_no_probe_runs_for_a_watch_that_a_user_disabled() -> None:
    off = disable(failed(WatchHealth(), 20))
    off.validate(CONFIG)
    assert off.disabled_by is DisabledBy.USER
    assert end_cooldown(off, NOW + timedelta(days=1), CONFIG) is off
    assert check_admission(off, NOW + timedelta(days=1), 0, CONFIG).verdict is AdmissionVerdict.REFUSED


def test_admission_waits_until_the_backoff_ends() -> None:
    health = failed(WatchHealth(), 3)
    assert health.backoff_until is not None
    waiting = check_admission(health, NOW, 0, CONFIG)
    assert (waiting.verdict, waiting.retry_at) == (AdmissionVerdict.WAIT, health.backoff_until)
    assert check_admission(health, health.backoff_until, 0, CONFIG).is_allowed


def test_status_names() -> None:
    assert [str(each) for each in HealthStatus] == ["healthy", "degraded", "backoff", "disabled"]
