"""Machine code that goes through a long list lets other threads in: each item passes through a step of Python's own."""

from inspect import isgenerator

import pytest

from vedette.compiled import COMPILED_MODULES
from vedette.gil import interruptible


@pytest.mark.parametrize("length", [0, 1, 999, 1_000, 5_000])
def test_items_are_unchanged(length: int) -> None:
    items = list(range(length))
    assert list(interruptible(items)) == items


def test_long_list_releases_the_gil() -> None:
    """A generator of a module that is never compiled: Python looks for other threads whenever it goes on."""
    assert isgenerator(interruptible([None] * 100_000))
    assert "vedette.gil" not in COMPILED_MODULES


def test_short_list_is_returned_directly() -> None:
    items = [1, 2, 3]
    assert interruptible(items) is items
