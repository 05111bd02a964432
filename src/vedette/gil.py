"""Lets other threads in while the compiled core goes through a long list."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["interruptible"]

Item = TypeVar("Item")

_LONG = 1_000


def interruptible(items: Sequence[Item]) -> Iterable[Item]:
    """The items. Python lets another thread run between two steps of its own, machine code does not: so this module
    is never compiled, and a long list passes through it."""
    return items if len(items) < _LONG else _stepwise(items)


def _stepwise(items: Sequence[Item]) -> Iterator[Item]:
    for item in items:  # noqa: UP028 - `yield from` would look for other threads only once
        yield item
