"""Compiled code lets other threads run while it iterates over a long list: each item passes through plain Python."""

from inspect import isgenerator

import pytest

from vedette.compiled import COMPILED_MODULES
from vedette.gil import interruptible


@pytest.mark.parametrize("length", [0, 1, 999, 1_000, 5_000])
def test_items_are_unchanged(length: int) -> None:
    items = list(range(length))
    assert list(interruptible(items)) == items


def test_long_list_releases_the_gil() -> None:
    """The result is a generator of an uncompiled module: Python can switch threads at each step."""
    assert isgenerator(interruptible([None] * 100_000))
    assert "vedette.gil" not in COMPILED_MODULES


def test_short_list_is_returned_directly() -> None:
    items = [1, 2, 3]
    assert interruptible(items) is items
