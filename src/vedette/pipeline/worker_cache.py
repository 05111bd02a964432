"""Stores that a Python worker keeps open between tasks, because connecting takes longer than a small task."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, Protocol, TypeVar

__all__ = ["ConnectionCache", "close_connections"]

MAX_OPEN = 8
_tables: list[ConnectionCache[_Closable]] = []


class _Closable(Protocol):
    def close(self) -> None: ...


Store = TypeVar("Store", bound=_Closable)


class ConnectionCache(Generic[Store]):
    """Address to the open store. Above the limit the least recently used one is closed."""

    def __init__(self, open: Callable[[str], Store]) -> None:
        self._open = open
        self._stores: dict[str, Store] = {}
        self._lock = Lock()
        _tables.append(self)  # type: ignore[arg-type]

    def __call__(self, address: str) -> Store:
        with self._lock:
            store = self._stores.pop(address, None) or self._open(address)
            self._stores[address] = store
            if len(self._stores) > MAX_OPEN:
                self._stores.pop(next(iter(self._stores))).close()
            return store

    def close(self) -> None:
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()


def close_connections() -> None:
    """Close all cached stores of this process; they open again on use."""
    for table in _tables:
        table.close()
