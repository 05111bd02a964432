"""The modes of lagging partitions: thresholds with hysteresis, and no silent loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.control.lag_policy import TRANSITIONS, LagPolicy, ModeChange


def policy() -> LagPolicy:
    return LagPolicy(limit_seconds=100.0, target_p99_seconds=5.0)


@pytest.mark.parametrize(
    ("lags", "modes"),
    [
        ([0, 69, 60], ["normal", "normal", "normal"]),
        ([70, 89, 61, 59], ["shedding", "shedding", "shedding", "normal"]),
        ([90, 71, 60, 59.9], ["degraded", "degraded", "degraded", "normal"]),
        ([75, 95, 65, 10], ["shedding", "degraded", "degraded", "normal"]),
    ],
)
def test_thresholds_have_hysteresis(lags: list[float], modes: list[str]):
    machine = policy()
    found = []
    for at, lag in enumerate(lags):
        machine.observe({1: lag}, float(at))
        found.append(machine.mode(1))
    assert found == modes


def test_leaving_degraded_starts_a_new_epoch():
    machine = policy()
    (down,) = machine.observe({1: 95.0, 2: 0.0}, 0.0)
    assert (down.partition, down.mode, down.new_epoch) == (1, "degraded", False)
    assert machine.observe({1: 95.0, 2: 0.0}, 1.0) == []
    (up,) = machine.observe({1: 0.0, 2: 0.0}, 2.0)
    assert (up.mode, up.new_epoch) == ("normal", True)


def test_an_objective_missed_for_a_minute_sheds_load_until_it_is_met_for_a_minute():
    machine, changes = policy(), []
    for second in range(200):
        lag = 10.0 if second < 70 else 0.0
        changes += [(second, change.mode) for change in machine.observe({1: lag}, float(second))]
    assert changes[0] == (60, "shedding")
    assert [mode for _, mode in changes] == ["shedding", "normal"]
    assert changes[1][0] > 70


def test_a_removed_partition_is_forgotten():
    machine = policy()
    machine.observe({1: 95.0}, 0.0)
    machine.observe({}, 1.0)
    assert machine.mode(1) == "normal"


@given(st.lists(st.dictionaries(st.sampled_from([1, 2]), st.floats(0, 200), max_size=2), max_size=60))
def test_every_transition_is_in_the_table(steps: list[dict[int, float]]):
    machine = policy()
    before: dict[int, str] = {}
    moves = {(start, end) for (start, _), end in TRANSITIONS.items()}
    for at, lags in enumerate(steps):
        for change in machine.observe(lags, at * 7.0):
            assert isinstance(change, ModeChange)
            assert change.before == before.get(change.partition, "normal")
            assert (change.before, change.mode) in moves
            before[change.partition] = change.mode
        before = {partition: mode for partition, mode in before.items() if partition in lags}
        machine.validate()
        for partition, lag in lags.items():
            if lag >= 90:
                assert machine.mode(partition) == "degraded"
