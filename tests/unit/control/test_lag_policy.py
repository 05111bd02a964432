"""Partitions that fall behind: marks in pairs, no fluttering, nobody passed over in silence."""

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
def test_marks_come_in_pairs(lags: list[float], modes: list[str]):
    machine = policy()
    found = []
    for at, lag in enumerate(lags):
        machine.observe({1: lag}, float(at))
        found.append(machine.mode(1))
    assert found == modes


def test_whoever_was_passed_over_begins_anew():
    machine = policy()
    (down,) = machine.observe({1: 95.0, 2: 0.0}, 0.0)
    assert (down.partition, down.mode, down.new_epoch) == (1, "degraded", False)
    assert machine.observe({1: 95.0, 2: 0.0}, 1.0) == []
    (up,) = machine.observe({1: 0.0, 2: 0.0}, 2.0)
    assert (up.mode, up.new_epoch) == ("normal", True)


def test_a_target_missed_for_a_minute_sheds_load_until_it_is_met_for_a_minute():
    machine, changes = policy(), []
    for second in range(200):
        lag = 10.0 if second < 70 else 0.0
        changes += [(second, change.mode) for change in machine.observe({1: lag}, float(second))]
    assert changes[0] == (60, "shedding")
    assert [mode for _, mode in changes] == ["shedding", "normal"]
    assert changes[1][0] > 70


def test_a_partition_that_is_gone_is_forgotten():
    machine = policy()
    machine.observe({1: 95.0}, 0.0)
    machine.observe({}, 1.0)
    assert machine.mode(1) == "normal"


@given(st.lists(st.dictionaries(st.sampled_from([1, 2]), st.floats(0, 200), max_size=2), max_size=60))
def test_every_move_is_in_the_table(steps: list[dict[int, float]]):
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
