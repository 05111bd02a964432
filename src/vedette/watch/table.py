"""Watches by number. Numbers are given one after another, so a list will do: eight bytes a watch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["NumberedTable"]

Item = TypeVar("Item")


class NumberedTable(Generic[Item]):
    """A mapping from the numbers 1, 2, 3 … to items, some of them gone."""

    __slots__ = ("_items", "_size")

    def __init__(self) -> None:
        self._items: list[Item | None] = [None]
        self._size = 0

    def next_number(self) -> int:
        """The next number; its place is empty until it is set."""
        self._items.append(None)
        return len(self._items) - 1

    def __setitem__(self, number: int, item: Item) -> None:
        if self._items[number] is None:
            self._size += 1
        self._items[number] = item

    def __getitem__(self, number: int) -> Item:
        item = self.get(number)
        if item is None:
            raise KeyError(number)
        return item

    def get(self, number: int) -> Item | None:
        return self._items[number] if 0 < number < len(self._items) else None

    def pop(self, number: int) -> None:
        if self.get(number) is not None:
            self._items[number] = None
            self._size -= 1

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __len__(self) -> int:
        return self._size

    def values(self) -> Iterator[Item]:
        return (item for item in list(self._items) if item is not None)
