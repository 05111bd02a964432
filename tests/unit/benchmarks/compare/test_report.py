"""Ratios, intervals, the table and the exit code of a comparison of two commits."""

from __future__ import annotations

import io
from random import Random

import pytest
from rich.console import Console

from benchmarks.compare.report import (
    Comparison,
    Interval,
    MetricSamples,
    common_cases,
    compare,
    current_name,
    exit_code,
    median_interval,
    pair_ratios,
    table,
    verdict,
)


def samples(*values: float, metric: str = "delay", unit: str = "ms", more: bool = False) -> MetricSamples:
    return MetricSamples(
        contender="vedette", metric=metric, unit=unit, more_is_better=more, samples=tuple(values)
    )


def comparison(low: float, high: float) -> Comparison:
    return Comparison(
        case="inserts",
        contender="Vedette",
        metric="inserts",
        unit="/s",
        old=123_456.0,
        new=1.25,
        ratio=(low + high) / 2,
        interval=Interval(low, high),
        pairs=7,
    )


def test_ratio_above_one_means_slower_for_both_directions() -> None:
    assert pair_ratios([10.0, 20.0], [11.0, 20.0], more_is_better=False) == [1.1, 1.0]
    assert pair_ratios([11.0, 20.0], [10.0, 20.0], more_is_better=True) == [1.1, 1.0]


def test_pair_without_two_usable_values_has_no_ratio() -> None:
    old, new = [0.0, 1.0, float("nan"), 2.0, 5.0], [1.0, 0.0, 1.0, 4.0]
    assert pair_ratios(old, new, more_is_better=False) == [2.0]


@pytest.mark.parametrize(
    ("count", "cut"), [(1, 0), (3, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (17, 4), (20, 5), (31, 9)]
)
def test_interval_follows_the_binomial_distribution(count: int, cut: int) -> None:
    values = [float(number) for number in range(count)]
    Random(1).shuffle(values)
    assert median_interval(values) == Interval(cut, count - 1 - cut)


def test_interval_contains_the_median_at_the_stated_rate() -> None:
    random, hits, tries = Random(7), 0, 2_000
    for _ in range(tries):
        found = median_interval([random.gauss(1.0, 0.1) for _ in range(9)])
        hits += found.low <= 1.0 <= found.high
    assert hits / tries > 0.945


def test_case_is_compared_by_the_median_of_its_pairs() -> None:
    (found,) = compare("delivery-latency", [samples(10, 10, 10)], [samples(12, 11, 30)])
    assert (found.old, found.new, found.ratio, found.pairs) == (10, 12, 1.2, 3)
    assert found.interval == Interval(1.1, 3.0)


def test_drift_of_both_commits_cancels_out() -> None:
    (found,) = compare("delivery-latency", [samples(10, 20, 40)], [samples(11, 22, 44)])
    assert found.ratio == pytest.approx(1.1)
    assert found.interval.low == pytest.approx(found.interval.high)


def test_renamed_metric_is_matched_by_position_and_unit() -> None:
    old = [samples(1, metric="messages told", unit="/s"), samples(2, metric="delay")]
    new = [samples(1, metric="messages delivered", unit="/s"), samples(4, metric="delay")]
    assert [(c.metric, c.ratio) for c in compare("fan-out", old, new)] == [
        ("messages delivered", 1.0),
        ("delay", 2.0),
    ]


def test_metric_of_one_commit_only_is_omitted() -> None:
    old = [samples(1, metric="delay")]
    new = [samples(1, metric="memory", unit="bytes"), samples(2, metric="delay")]
    assert [c.metric for c in compare("connections", old, new)] == ["delay"]
    assert compare("connections", [samples(1, unit="s")], [samples(1, unit="ms")]) == []
    assert compare("connections", [samples(0.0)], [samples(0.0)]) == []


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.051, 1.2, "slower"),
        (1.05, 1.2, "same"),
        (0.9, 1.5, "same"),
        (1.01, 1.04, "same"),
        (0.8, 0.99, "faster"),
        (0.8, 1.0, "same"),
    ],
)
def test_case_is_slower_only_if_its_whole_interval_is(low: float, high: float, word: str) -> None:
    assert verdict(comparison(low, high)) == word


def test_exit_code_distinguishes_slower_from_failed() -> None:
    same, slower = comparison(0.9, 1.1), comparison(1.06, 1.2)
    assert exit_code([same], {}) == 0
    assert exit_code([same, slower], {}) == 1
    assert exit_code([same], {"connections": "a connection was refused"}) == 2
    assert exit_code([slower], {"connections": "a connection was refused"}) == 2
    assert exit_code([], {}) == 2


def test_table_has_a_row_for_each_metric() -> None:
    output = io.StringIO()
    Console(file=output, width=200).print(table([comparison(1.06, 1.2), comparison(0.9, 1.1)], "b against a"))
    text = output.getvalue()
    assert "b against a" in text
    rows = [line for line in text.splitlines() if "inserts" in line]
    assert len(rows) == 2
    for part in ("Vedette: inserts, /s", "123,456", "1.25", "1.130", "1.060 to 1.200", "7", "slower"):
        assert part in rows[0]
    assert "same" in rows[1]


def test_cases_are_found_under_their_old_and_new_names() -> None:
    assert current_name("told") == "delivery-latency"
    assert current_name("inserts") == "inserts"
    both, others = common_cases(
        ["inserts", "told", "crowd", "gone"], ["connections", "delivery-latency", "inserts", "added"]
    )
    assert both == [("crowd", "connections"), ("told", "delivery-latency"), ("inserts", "inserts")]
    assert others == ["gone", "added"]
