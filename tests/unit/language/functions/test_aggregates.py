"""Accumulators: exact sums, averages, MIN and MAX with NaN, COLLECT and its limits, DISTINCT."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from vedette.errors import QueryError
from vedette.language.functions.aggregates import DEFAULT_COLLECT_LIMIT, accumulator_for, apply_collect_limit
from vedette.values import INT_MAX, INT_MIN


def result_of(name: str, values: list[Any], **options: Any) -> Any:
    accumulator = accumulator_for(name, **options)
    for value in values:
        accumulator.add(value)
    return accumulator.result()


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("COUNT", [], 0),
        ("COUNT", [1, None, 1], 3),
        ("SUM", [], None),
        ("SUM", [1, 2], 3),
        ("SUM", [1, 0.5], 1.5),
        ("SUM", [INT_MAX, 1], INT_MIN),
        ("SUM", [1e100, 1.0, -1e100], 1.0),
        ("SUM", [0.1] * 10, 1.0),
        ("SUM", [timedelta(seconds=1), timedelta(seconds=2)], timedelta(seconds=3)),
        ("SUM", [math.inf, 1], math.inf),
        ("AVG", [], None),
        ("AVG", [1, 2], 1.5),
        ("AVG", [timedelta(milliseconds=1), timedelta(milliseconds=2)], timedelta(milliseconds=1)),
        ("MIN", [], None),
        ("MIN", [3, 1, 2], 1),
        ("MAX", ["a", "c", "b"], "c"),
        ("COLLECT", [2, None, 1], [2, None, 1]),
    ],
)
def test_results(name: str, values: list[Any], expected: Any) -> None:
    assert result_of(name, values) == expected


@pytest.mark.parametrize("name", ["SUM", "AVG", "MIN", "MAX"])
@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0, math.nan], [1.0, math.nan, 2.0]])
def test_nan_in_any_position_gives_nan(name: str, values: list[float]) -> None:
    assert math.isnan(result_of(name, values))


def test_distinct_counts_equal_values_once() -> None:
    assert result_of("COUNT", [1, 1.0, True, "1", math.nan, math.nan], distinct=True) == 4


def test_an_explicit_limit_cuts_and_the_default_limit_raises() -> None:
    assert result_of("COLLECT", [1, 2, 3], limit=2) == [1, 2]
    values = list(range(DEFAULT_COLLECT_LIMIT + 1))
    assert apply_collect_limit(values, -1) == values
    with pytest.raises(QueryError, match="E5003"):
        apply_collect_limit(values, None)
