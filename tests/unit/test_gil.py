"""Machine code that goes through a long list lets other threads in: each item passes through a step of Python's own."""

from inspect import isgenerator

import pytest

from vedette.compiled import COMPILED_MODULES
from vedette.gil import interruptible


@pytest.mark.parametrize("length", [0, 1, 999, 1_000, 5_000])
def test_the_items_are_what_they_were(length: int) -> None:
    items = list(range(length))
    assert list(interruptible(items)) == items


def test_a_long_list_goes_through_python() -> None:
    """A generator of a module that is never compiled: Python looks for other threads whenever it goes on."""
    assert isgenerator(interruptible([None] * 100_000))
    assert "vedette.gil" not in COMPILED_MODULES


def test_a_short_one_costs_nothing() -> None:
    items = [1, 2, 3]
    assert interruptible(items) is items
