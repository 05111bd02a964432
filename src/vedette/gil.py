"""Lets other threads run while the compiled core processes a long list."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["interruptible"]

Item = TypeVar("Item")

_LONG = 1_000


def interruptible(items: Sequence[Item]) -> Iterable[Item]:
    """Return the items. A long list passes through a generator, between whose steps Python can switch threads.

    Machine code does not switch threads between steps, so this module must not be compiled.
    """
    return items if len(items) < _LONG else _stepwise(items)


def _stepwise(items: Sequence[Item]) -> Iterator[Item]:
    for item in items:  # noqa: UP028 - `yield from` would allow a switch only once
        yield item
