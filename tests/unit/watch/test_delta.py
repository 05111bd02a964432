"""What counts as a change: rows are compared as a reader would, not as Python does."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.watch.delta import value_key, values_equal

NAN = math.nan


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (None, None, True),
        (NAN, float("nan"), True),
        (NAN, 1.0, False),
        ([1, [2]], [1, [2]], True),
        ([1], [1.0], False),
        ([1, 2], [2, 1], False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": {"b": 1}}, {"a": {"b": True}}, False),
        ({"a": [NAN]}, {"a": [float("nan")]}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1, "b": None}, {"a": 1}, True),
        ({"a": None}, {"a": 0}, False),
    ],
)
def test_same(one: Any, other: Any, expected: bool):
    assert values_equal(one, other) is values_equal(other, one) is expected
    assert (value_key(one) == value_key(other)) is expected


LEAVES = st.none() | st.booleans() | st.integers(-1, 1) | st.sampled_from(["", "a", 0.0, 1.0, NAN, math.inf])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@given(VALUES, VALUES)
def test_frozen_forms_are_equal_when_values_are_the_same(one: Any, other: Any):
    assert values_equal(one, one)
    assert hash(value_key(one)) == hash(value_key(one))
    assert (value_key(one) == value_key(other)) is values_equal(one, other)
