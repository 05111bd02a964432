"""Watches by number. Numbers are consecutive, so blocks of lists suffice: eight bytes per watch.

Empty blocks are dropped, so removed watches cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["NumberedTable"]

Item = TypeVar("Item")
_BITS = 10
_BLOCK = 1 << _BITS


class NumberedTable(Generic[Item]):
    """A mapping from the numbers 1, 2, 3 … to items; removed numbers are not reused."""

    __slots__ = ("_blocks", "_last", "_size")

    def __init__(self) -> None:
        self._blocks: dict[int, list[Item | None]] = {}
        """By the high bits of the number, in order."""
        self._last = 0
        self._size = 0

    def next_number(self) -> int:
        """Reserve the next number. It has no item until it is set."""
        self._last += 1
        position = self._last >> _BITS
        if position not in self._blocks:
            self._blocks[position] = [None] * _BLOCK
            self._drop_empty(position - 1)
        return self._last

    def _drop_empty(self, place: int) -> None:
        block = self._blocks.get(place)
        if block is not None and place < self._last >> _BITS and block.count(None) == _BLOCK:
            del self._blocks[place]

    def __setitem__(self, number: int, item: Item) -> None:
        block = self._blocks[number >> _BITS]
        if block[number % _BLOCK] is None:
            self._size += 1
        block[number % _BLOCK] = item

    def __getitem__(self, number: int) -> Item:
        item = self.get(number)
        if item is None:
            raise KeyError(number)
        return item

    def get(self, number: int) -> Item | None:
        block = self._blocks.get(number >> _BITS)
        return block[number % _BLOCK] if block is not None else None

    def pop(self, number: int) -> None:
        if self.get(number) is not None:
            self._blocks[number >> _BITS][number % _BLOCK] = None
            self._size -= 1
            self._drop_empty(number >> _BITS)

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __len__(self) -> int:
        return self._size

    def values(self) -> Iterator[Item]:
        return (item for block in list(self._blocks.values()) for item in list(block) if item is not None)
