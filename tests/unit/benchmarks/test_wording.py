"""Goal texts of the benchmark table, and the changes that all contenders process."""

from __future__ import annotations

import pytest

from benchmarks.case import Metric, Outcome, Series
from benchmarks.live.seam import HIGH, Workload
from benchmarks.rounds import percentile
from benchmarks.wording import goal_words, verdict


def outcome(metric: Metric, **samples: list[float]) -> Outcome:
    series = [Series(contender=name, about="", samples=values) for name, values in samples.items()]
    return Outcome(case="case", title="", method="", metric=metric, series=series)


RATE = Metric(name="rate", unit="/s", more_is_better=True, times=2, against="peer")
AHEAD = Metric(name="rate", unit="/s", more_is_better=True, times=1, against="all")
SHORT = Metric(name="time", unit="ms", goal=1)


@pytest.mark.parametrize(
    ("metric", "samples", "reached"),
    [
        (RATE, {"ours": [20.0], "peer": [10.0], "other": [90.0]}, True),
        (RATE, {"ours": [19.0], "peer": [10.0]}, False),
        (RATE, {"ours": [19.0], "peer": []}, None),
        (AHEAD, {"ours": [20.0], "slow": [10.0], "slower": [1.0]}, True),
        (AHEAD, {"ours": [20.0], "slow": [10.0], "quick": [21.0]}, False),
        (AHEAD, {"ours": [20.0], "slow": [10.0], "absent": []}, True),
        (SHORT, {"ours": [0.9]}, True),
        (SHORT, {"ours": [1.0]}, False),
        (SHORT, {"ours": []}, None),
    ],
)
def test_goal_is_reached_missed_or_unknown(metric, samples, reached):
    assert verdict(outcome(metric, **samples)) is reached


def test_goal_texts():
    assert [goal_words(metric) for metric in (RATE, AHEAD, SHORT)] == ["≥ 2× peer", "ahead of all", "< 1 ms"]


def test_percentile_is_one_of_the_values():
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([float(n) for n in range(1000)], 0.99) == 990.0


@pytest.mark.parametrize("pattern", ["filter", "hop"])
def test_every_change_enters_or_leaves_the_filter(pattern):
    workload = Workload(pattern=pattern, people=7)
    ranks = workload.first_ranks()
    for key, rank in workload.changes(0, 50):
        assert (rank > HIGH) != (ranks[key] > HIGH)
        ranks[key] = rank


def test_every_change_of_a_keyed_person_matches_once():
    workload = Workload(pattern="keys", people=7, watches=7)
    ranks = workload.first_ranks()
    for key, rank in workload.changes(0, 50):
        assert rank != ranks[key]
        ranks[key] = rank
