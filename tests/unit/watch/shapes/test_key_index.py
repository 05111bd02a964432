"""The index of a shape's watches finds exactly those whose key and range let a row through."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.watch.shapes.key_index import KeyIndex

COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(unsafe_hash=True)
class Item:
    number: int


def numbers(found: Any) -> list[int]:
    return sorted(item.number for item in found)


def test_one_key_one_watch_then_several():
    index: KeyIndex[Item] = KeyIndex(None)
    first, second = Item(1), Item(2)
    index.add("a", None, first)
    assert numbers(index.find("a", None)) == [1]
    index.add("a", None, second)
    index.validate()
    assert numbers(index.find("a", None)) == [1, 2]
    assert numbers(index.find("b", None)) == []
    index.remove("a", None, first)
    index.remove("a", None, second)
    index.validate()
    assert index.size == 0
    assert numbers(index.find("a", None)) == []


def test_null_and_nan_satisfy_no_range():
    index: KeyIndex[Item] = KeyIndex("<=")
    index.add((), 1.0, Item(1))
    for value in (None, math.nan):
        assert numbers(index.find((), value)) == []
    assert numbers(index.find((), -math.inf)) == [1]


@pytest.mark.parametrize("op", list(COMPARE))
def test_bounds_are_sharp(op: str):
    index: KeyIndex[Item] = KeyIndex(op)
    for number in (3, 1, 2, 2):
        index.add((), number, Item(number))
    for value in (0, 1, 2, 2.5, 3, 4):
        expected = [c for c in (1, 2, 2, 3) if COMPARE[op](value, c)]
        assert numbers(index.find((), value)) == expected


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 4)), max_size=40)


@given(STEPS, st.sampled_from([None, *COMPARE]))
def test_like_looking_at_all_of_them(steps: list[tuple[bool, int, int]], op: str | None):
    index: KeyIndex[Item] = KeyIndex(op)
    there: dict[int, tuple[int, int, Item]] = {}
    for number, (enter, key, constant) in enumerate(steps):
        if enter or not there:
            there[number] = (key, constant, Item(number))
            index.add(*there[number])
        else:
            index.remove(*there.pop(sorted(there)[(key + constant) % len(there)]))
        index.validate()
    assert numbers(index.all_watches()) == sorted(there)
    for key in range(4):
        for value in range(5):
            fits = [n for n, (k, c, _) in there.items() if k == key and (op is None or COMPARE[op](value, c))]
            assert numbers(index.find(key, value)) == sorted(fits)


def test_samples_come_round():
    index: KeyIndex[Item] = KeyIndex(">")
    for number in range(6):
        index.add(number % 2, number, Item(number))
    assert {index.sample(turn) for turn in range(12)} == {Item(number) for number in range(6)}
