"""Ranks compare natively, and as ORDER BY would: by key after key, each with its direction and its place for nulls."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.watch.ordering import sort_key

NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0]),
)
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
SPANS = st.integers(-(10**12), 10**12).map(lambda ms: timedelta(milliseconds=ms))
TEXTS = st.text(max_size=3)
KINDS = [NUMBERS, TEXTS, MOMENTS, SPANS]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], list[bool]]:
    """Rows of comparable columns with nulls, and a direction for each column."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    columns = [st.none() | kind for kind in kinds]
    rows = draw(st.lists(st.tuples(*columns), max_size=12))
    return rows, draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))


def compare(one: tuple[Any, ...], other: tuple[Any, ...], descending: list[bool]) -> int:
    """ORDER BY, said slowly."""
    for mine, theirs, down in zip(one, other, descending, strict=True):
        if mine is None and theirs is None:
            continue
        if mine is None or theirs is None:
            return (1 if mine is None else -1) * (-1 if down else 1)
        if mine != theirs:
            return (-1 if mine < theirs else 1) * (-1 if down else 1)
    return 0


@given(tables())
def test_as_order_by_sorts(table: tuple[list[tuple[Any, ...]], list[bool]]) -> None:
    rows, descending = table

    def by_columns(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
        return compare(one, other, descending)

    expected = sorted(rows, key=cmp_to_key(by_columns))
    assert sorted(rows, key=lambda row: sort_key(row, descending)) == expected


@given(tables())
def test_equal_values_have_equal_ranks(table: tuple[list[tuple[Any, ...]], list[bool]]) -> None:
    rows, descending = table
    for one in rows:
        for other in rows:
            equal = compare(one, other, descending) == 0
            assert (sort_key(one, descending) == sort_key(other, descending)) is equal


@given(
    st.lists(st.none() | st.one_of(*KINDS) | st.lists(st.integers(), max_size=2), max_size=8), st.booleans()
)
def test_values_without_a_common_order_have_one_all_the_same(values: list[Any], down: bool) -> None:
    ranks = sorted(sort_key([value], [down]) for value in values)
    assert all(not later < earlier for earlier, later in pairwise(ranks))
    upwards = sorted(sort_key([value], [False]) for value in values if value is not None)
    downwards = sorted((sort_key([value], [True]) for value in values if value is not None), reverse=True)
    assert [rank[0] for rank in upwards] == [-rank[0] for rank in downwards]


@pytest.mark.parametrize("down", [False, True])
def test_not_a_number_stands_above_all_numbers(down: bool) -> None:
    values = [math.nan, math.inf, 10**400, -1.5, None]
    ranked = sorted(values, key=lambda value: sort_key([value], [down]))
    expected = [-1.5, 10**400, math.inf, math.nan, None]
    assert list(map(repr, ranked)) == list(map(repr, reversed(expected) if down else expected))
