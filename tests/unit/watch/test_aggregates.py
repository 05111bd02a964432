"""Aggregates that are kept up to date say what a fresh aggregate over the same rows says, to the bit."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.language.compile.queries import accumulator_factory
from vedette.language.resolve.tree import AggregateCall, FixedValue
from vedette.language.types import ANY_VALUE, INT
from vedette.watch.aggregates import INCREMENTAL_AGGREGATES, Groups, are_incremental
from vedette.watch.delta import values_equal

VALUE = FixedValue(None, ANY_VALUE)
NAMES = sorted(INCREMENTAL_AGGREGATES)


def call(name: str, *, distinct: bool = False) -> AggregateCall:
    return AggregateCall(name, VALUE, distinct, None, None, 1, INT)


CALLS = tuple(call(name, distinct=distinct) for name in NAMES for distinct in (False, True))


def fresh(values: list[Any]) -> list[Any]:
    """What MATCH computes over these values, null ones left out as it does."""
    found = []
    for each in CALLS:
        add, result = accumulator_factory(each, lambda row: row[1], None)()
        for value in values:
            add([None, value])
        found.append(result())
    return found


def contribution(value: Any) -> Any:
    return (), [(value is not None, value) for _ in CALLS]


def check(steps: list[tuple[bool, Any]]) -> None:
    groups = Groups(CALLS)
    there: list[Any] = []
    for enter, value in steps:
        if enter or not there:
            there.append(value)
            groups.change(contribution(value), 1)
        else:
            groups.change(contribution(there.pop(len(there) // 2)), -1)
        _, results = groups.results(()) or ((), [])
        assert all(map(values_equal, results, fresh(there))), (there, results, fresh(there))


FLOATS = st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1e300, -1e300, 5e-324, -0.0, 3.0])
ODD = st.sampled_from([math.nan, math.inf, -math.inf, 1.0])


@pytest.mark.parametrize(
    "values",
    [
        st.integers(-(2**63), 2**63 - 1) | st.none(),
        st.integers(0, 2) | st.none(),
        FLOATS | st.none(),
        FLOATS | ODD,
        st.integers(-5, 5).map(lambda seconds: timedelta(seconds=seconds)),
    ],
    ids=["large", "small", "floats", "odd", "durations"],
)
@given(data=st.data())
def test_kept_up_to_date_is_the_same_as_fresh(values: st.SearchStrategy[Any], data: st.DataObject):
    check(data.draw(st.lists(st.tuples(st.booleans(), values), max_size=25)))


def test_strings_and_truths():
    for name, values in (("MIN", ["b", "a", "c"]), ("MAX", [False, True, False])):
        groups = Groups((call(name),))
        for value in values:
            groups.change(((), [(True, value)]), 1)
        for value in values[:-1]:
            groups.change(((), [(True, value)]), -1)
        assert groups.results(()) == ((), [values[-1]])


def test_groups_come_and_go():
    groups = Groups((call("COUNT"),))
    red = groups.change((("red",), [(True, 1)]), 1)
    groups.change((("red",), [(False, None)]), 1)
    assert groups.results(red) == (("red",), [1])
    groups.change((("red",), [(True, 1)]), -1)
    assert groups.results(red) == (("red",), [0])
    groups.change((("red",), [(False, None)]), -1)
    assert groups.results(red) is None
    assert groups.identities() == []


def test_keys_that_are_alike():
    groups = Groups((call("COUNT"),))
    first = groups.change(((math.nan,), [(True, 1)]), 1)
    assert groups.change(((float("nan"),), [(True, 1)]), 1) == first
    assert groups.change(((True,), [(True, 1)]), 1) != groups.change(((1,), [(True, 1)]), 1)


def test_without_a_key_there_is_always_a_row():
    assert Groups(CALLS).results(()) == ((), fresh([]))


def test_collect_is_not_maintained():
    assert are_incremental(CALLS)
    assert not are_incremental((call("COLLECT"),))
