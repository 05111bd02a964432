"""Finds the watches of a shape that a row can affect, without examining the others.

Equality conditions `row expression = constant` form a composite hash key. One range condition `row value <
constant` sorts the watches under a key by their constant. If a shape has neither, all its watches are candidates.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["HasNumber", "KeyIndex", "SortedWatches"]


class HasNumber(Protocol):
    number: int


Item = TypeVar("Item", bound=HasNumber)


class SortedWatches(Generic[Item]):
    """Watches sorted by their constant."""

    __slots__ = ("constants", "items")

    def __init__(self) -> None:
        self.constants: list[Any] = []
        self.items: list[Item] = []

    def add(self, constant: Any, item: Item) -> None:
        position = bisect_right(self.constants, constant)
        self.constants.insert(position, constant)
        self.items.insert(position, item)

    def remove(self, constant: Any, item: Item) -> None:
        position = bisect_left(self.constants, constant)
        while self.items[position] is not item:
            position += 1
        del self.constants[position], self.items[position]


class KeyIndex(Generic[Item]):
    """Watches by key. A key with one watch stores the watch itself, with several a dict, to save memory."""

    __slots__ = ("_bisect", "_entries", "_op", "_selects_lower_constants", "find", "size")

    find: Callable[[Any, Any], Collection[Item]]
    """The watches under the key whose range condition holds for the value. Null and NaN satisfy none."""

    def __init__(self, range_op: str | None) -> None:
        self._entries: dict[Any, Any] = {}
        self._op = range_op
        self._selects_lower_constants = range_op in (">", ">=")
        """True if the condition holds for constants below the row's value."""
        self._bisect = bisect_left if range_op in (">", "<=") else bisect_right
        self.find = self._find_by_key if range_op is None else self._find_by_range
        self.size = 0

    def add(self, key: Any, constant: Any, item: Item) -> None:
        """Add a watch; `constant` is that of the range condition, if the shape has one."""
        self.size += 1
        held = self._entries.get(key)
        if self._op is not None:
            if held is None:
                held = self._entries[key] = SortedWatches()
            held.add(constant, item)
        elif held is None:
            self._entries[key] = item
        elif type(held) is dict:
            held[item.number] = item
        else:
            self._entries[key] = {held.number: held, item.number: item}

    def remove(self, key: Any, constant: Any, item: Item) -> None:
        self.size -= 1
        held = self._entries[key]
        if self._op is not None:
            held.remove(constant, item)
            if not held.items:
                del self._entries[key]
        elif type(held) is dict:
            del held[item.number]
            if len(held) == 1:
                self._entries[key] = next(iter(held.values()))
        else:
            del self._entries[key]

    def _find_by_key(self, key: Any, value: Any) -> Collection[Item]:  # noqa: ARG002 - there is no range
        held = self._entries.get(key)
        if held is None:
            return ()
        return held.values() if type(held) is dict else (held,)

    def _find_by_range(self, key: Any, value: Any) -> Collection[Item]:
        held = self._entries.get(key)
        if held is None or value is None or value != value:  # noqa: PLR0124 - NaN is not equal to itself
            return ()
        position = self._bisect(held.constants, value)
        items: list[Item] = held.items
        return items[:position] if self._selects_lower_constants else items[position:]

    def sample(self, n: int) -> Item | None:
        """Return some watch. Different values of `n` select different watches."""
        held = next(islice(self._entries.values(), n % min(len(self._entries), 1000), None), None)
        if isinstance(held, SortedWatches):
            return held.items[n % len(held.items)] if held.items else None
        return next(iter(held.values())) if type(held) is dict else held

    def all_watches(self) -> list[Item]:
        found: list[Item] = []
        for held in self._entries.values():
            if isinstance(held, SortedWatches):
                found.extend(held.items)
            elif type(held) is dict:
                found.extend(held.values())
            else:
                found.append(held)
        return found

    def validate(self) -> None:
        """Raise AssertionError unless sizes and order agree. For tests."""
        total = 0
        for held in self._entries.values():
            if isinstance(held, SortedWatches):
                assert held.constants == sorted(held.constants)
                assert len(held.constants) == len(held.items) > 0
                total += len(held.items)
            elif type(held) is dict:
                assert len(held) > 1
                total += len(held)
            else:
                total += 1
        assert total == self.size
