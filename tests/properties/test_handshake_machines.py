"""The handshake state machines and small models agree for any order of events. `validate()` runs after every step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vedette.handshake.capacity import Capacity, RefusalReason, release, request
from vedette.handshake.circuit_breaker import CircuitState
from vedette.handshake.config import CircuitConfig, CoordinatorConfig, DegradationConfig, HealthConfig
from vedette.handshake.degradation import (
    Degradation,
    DegradationLevel,
    LoadObservation,
    apply_observation,
    decide_pauses,
    level_for_load,
)
from vedette.handshake.health import (
    DisabledBy,
    HealthStatus,
    WatchHealth,
    check_admission,
    disable,
    enable,
    end_cooldown,
    record_error,
    record_success,
    reset_errors,
)

START = datetime(2024, 1, 1, tzinfo=UTC)
SMALL = HealthConfig(circuit=CircuitConfig(consecutive_errors=6, errors_per_window=9))
"""Small limits that random events reach."""


class HealthMachine(RuleBasedStateMachine):
    """The model is the list of events: the expected value of each field is recomputed from it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.rng = Random(3)
        self.health = WatchHealth()
        self.row_of_errors = self.row_of_successes = self.total = 0
        self.window: list[datetime] = []
        """Errors since the circuit was last closed."""

    @rule(network=st.booleans())
    def fail(self, network: bool) -> None:
        before = self.health
        self.health = record_error(before, self.now, "x", SMALL, self.rng, network=network)
        self.row_of_errors, self.row_of_successes, self.total = self.row_of_errors + 1, 0, self.total + 1
        self.window.append(self.now)
        recent = [moment for moment in self.window if self.now - moment < timedelta(hours=1)]
        trips = self.row_of_errors >= 6 or len(recent) >= 9
        if before.circuit.state is CircuitState.CLOSED:
            assert (self.health.circuit.state is CircuitState.OPEN) == trips
        else:
            assert self.health.circuit.state is CircuitState.OPEN
        self._forget_window_if_closed()

    @rule()
    def succeed(self) -> None:
        before = self.health
        self.health = record_success(before, self.now, SMALL)
        self.row_of_errors, self.row_of_successes = 0, self.row_of_successes + 1
        if before.circuit.state is CircuitState.HALF_OPEN:
            closed = before.circuit.successful_probes == 2
            assert (self.health.circuit.state is CircuitState.CLOSED) == closed
            if closed:
                self.window.clear()
        rank = list(HealthStatus)
        step = rank.index(before.health_status) - rank.index(self.health.health_status)
        assert step in (0, 1), "health climbs a step at a time and never falls by a success"

    @rule(seconds=st.sampled_from([0, 1, 60, 599, 1_800, 3_600]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        before = self.health
        self.health = end_cooldown(before, self.now, SMALL)
        opened = before.circuit.opened_at
        cooled = opened is not None and self.now - opened >= timedelta(hours=1)
        if before.circuit.state is CircuitState.OPEN and before.disabled_by is DisabledBy.CIRCUIT and cooled:
            assert self.health.circuit.state is CircuitState.HALF_OPEN
        else:
            assert self.health is before

    @rule()
    def reset(self) -> None:
        was_enabled = self.health.enabled
        self.health = reset_errors(self.health, self.now)
        self.row_of_errors = self.row_of_successes = 0
        self.window.clear()
        assert self.health.health_status is HealthStatus.HEALTHY
        assert self.health.enabled == was_enabled

    @rule()
    def disable(self) -> None:
        self.health = disable(self.health)
        assert not check_admission(self.health, self.now, 0, SMALL).is_allowed

    @rule()
    def enable(self) -> None:
        if self.health.circuit.state is not CircuitState.CLOSED:
            self.row_of_errors = self.row_of_successes = 0
            self.window.clear()
        self.health = enable(self.health, self.now)
        assert self.health.enabled

    @precondition(lambda self: self.health.circuit.state is CircuitState.CLOSED and self.health.enabled)
    @rule()
    def wait_long_enough(self) -> None:
        self.now += timedelta(seconds=331)
        assert check_admission(self.health, self.now, 0, SMALL).is_allowed, "no backoff outlasts the cap"

    @invariant()
    def fields_are_counted_right(self) -> None:
        self.health.validate(SMALL)
        assert self.health.consecutive_errors == self.row_of_errors
        assert self.health.consecutive_successes == self.row_of_successes
        assert self.health.total_errors == self.total

    @invariant()
    def a_refusal_names_a_way_out(self) -> None:
        answer = check_admission(self.health, self.now, 0, SMALL)
        if (
            not answer.is_allowed
            and self.health.disabled_by is not DisabledBy.USER
            and not self.reset_by_hand()
        ):
            assert answer.retry_at is not None

    def reset_by_hand(self) -> bool:
        return not self.health.enabled and self.health.circuit.state is CircuitState.CLOSED

    def _forget_window_if_closed(self) -> None:
        self.window = [moment for moment in self.window if self.now - moment < timedelta(hours=1)]


TestHealthMachine = HealthMachine.TestCase

CAPACITY = CoordinatorConfig(total_capacity=40, min_per_watch=3, max_per_watch=15)
WATCHES = st.sampled_from(["a", "b", "c", "d"])


class CapacityMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.capacity = Capacity()
        self.held: dict[str, int] = {}
        self.throttling = False

    @rule(watch=WATCHES, count=st.integers(1, 20), others=st.integers(0, 45))
    def request(self, watch: str, count: int, others: int) -> None:
        before = sum(self.held.values())
        grant = request(self.capacity, watch, count, others, CAPACITY)
        used = max(before, others)
        self._judge(used)
        holds = self.held.get(watch, 0)
        if used + count > 40:
            assert (grant.granted, grant.reason) == (False, RefusalReason.FULL)
        elif holds + count > 15:
            assert (grant.granted, grant.reason) == (False, RefusalReason.SHARE)
        elif self.throttling and holds + count > 3:
            assert (grant.granted, grant.reason) == (False, RefusalReason.THROTTLED)
        else:
            assert grant.granted
            self.held[watch] = holds + count
            self._judge(max(sum(self.held.values()), others))
        self.capacity = grant.capacity

    @rule(watch=WATCHES, count=st.integers(0, 25), others=st.integers(0, 45))
    def release(self, watch: str, count: int, others: int) -> None:
        self.capacity = release(self.capacity, watch, count, others, CAPACITY)
        self.held[watch] = max(0, self.held.get(watch, 0) - count)
        self._judge(max(sum(self.held.values()), others))

    @rule(watch=WATCHES)
    def withdraw(self, watch: str) -> None:
        self.capacity = release(self.capacity, watch, CAPACITY.max_per_watch, 0, CAPACITY)
        self.held.pop(watch, None)
        self._judge(sum(self.held.values()))

    @invariant()
    def what_is_held_is_what_was_granted(self) -> None:
        self.capacity.validate(CAPACITY)
        assert dict(self.capacity.tasks_by_watch) == {
            watch: count for watch, count in self.held.items() if count
        }
        assert self.capacity.throttling == self.throttling

    def _judge(self, used: int) -> None:
        """On from 80 %, off below 50 %, unchanged between."""
        if used >= 32:
            self.throttling = True
        elif used < 20:
            self.throttling = False


TestCapacityMachine = CapacityMachine.TestCase

LOADS = st.builds(
    LoadObservation,
    queue_depth=st.sampled_from([0, 999, 1_000, 3_000, 5_000, 9_999, 10_000]),
    throughput=st.sampled_from([None, 0.0, 49.0, 60.0, 75.0, 200.0]),
    memory_usage=st.sampled_from([0.1, 0.7, 0.9]),
)


@given(st.lists(st.tuples(st.sampled_from([0, 5, 30, 60, 120]), LOADS), max_size=60))
def test_degradation_rises_at_once_and_falls_one_level_at_a_time(
    checks: list[tuple[int, LoadObservation]],
) -> None:
    config, now = DegradationConfig(), START
    state, better = Degradation.initial(now), 0
    watches = [(str(priority), priority) for priority in range(11)]
    for seconds, load in checks:
        now += timedelta(seconds=seconds)
        before, asked = state, level_for_load(load, config)
        state = decide_pauses(apply_observation(state, load, now, config), watches, config).state
        state.validate(config)
        cooled = now - before.entered_at >= timedelta(seconds=60)
        better = better + 1 if asked < before.level and cooled else 0 if asked >= before.level else better
        if asked > before.level:
            assert state.level is asked
            better = 0
        elif better == 3:
            assert state.level == before.level - 1
            better = 0
        else:
            assert state.level is before.level
        paused = {DegradationLevel.MODERATE: 4, DegradationLevel.SEVERE: 6, DegradationLevel.CRITICAL: 9}
        assert len(state.paused_watch_ids) == paused.get(state.level, 0)
