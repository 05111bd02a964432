"""Objects that a Python worker keeps between tasks. Spark reuses its Python workers.

Opening a store or connecting to a gateway takes longer than a small task. Everything that outlives a task is here, and
nothing else is global to a worker process:

    journals, registries   open stores, by address
    gateways               the live gateways of a registry, cached for CACHE_SECONDS
    clients                open connections to gateways, by address and secret

Mapped index segments have a cache of their own (`subscriptions.index.segment`); `set_index_limit` bounds it.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Generic, Protocol, TypeVar

from pyspark import TaskContext

from vedette.clock import Clock, SystemClock
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.subscriptions.index import segment
from vedette.subscriptions.registry.records import Gateway
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.transport.ingest_client import IngestClient, open_client

__all__ = [
    "ClientCache",
    "ConnectionCache",
    "GatewayCache",
    "client_cache",
    "close_connections",
    "freeze_kept_objects",
    "gateways",
    "journals",
    "registries",
    "set_index_limit",
]

MAX_OPEN = 8
"""Stores of one kind that a worker keeps open."""
CACHE_SECONDS = 0.5
"""Maximum age of the cached gateways. A failed delivery reads the registry at once."""


class _Closable(Protocol):
    def close(self) -> None: ...


Store = TypeVar("Store", bound=_Closable)


class ConnectionCache(Generic[Store]):
    """Maps an address to the open store. Above MAX_OPEN the least recently used store is closed. Thread-safe."""

    def __init__(self, open: Callable[[str], Store]) -> None:
        self._open = open
        self._stores: dict[str, Store] = {}
        self._lock = Lock()

    def __call__(self, address: str) -> Store:
        with self._lock:
            store = self._stores.pop(address, None) or self._open(address)
            self._stores[address] = store
            if len(self._stores) > MAX_OPEN:
                self._stores.pop(next(iter(self._stores))).close()
            return store

    def close(self) -> None:
        """Close all stores. They open again on use."""
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()


class GatewayCache:
    """The gateways of a registry whose lease has not expired, and the broadcast fan-out."""

    def __init__(self, registry: SubscriptionRegistry, clock: Clock) -> None:
        self._registry, self._clock = registry, clock
        self._valid_until = 0.0
        self._gateways: list[Gateway] = []
        self._fan_out = 0

    def live(self, *, fresh: bool = False) -> list[Gateway]:
        """Return the live gateways. `fresh` bypasses the cache."""
        self._refresh(fresh=fresh)
        return self._gateways

    def addresses(self, *, fresh: bool = False) -> Mapping[int, str]:
        return {gateway.number: gateway.address for gateway in self.live(fresh=fresh)}

    def broadcast_fan_out(self) -> int:
        """Return how many gateways receive each change unfiltered; 0 while the index is reliable."""
        self._refresh()
        return self._fan_out

    def invalidate(self) -> None:
        """Make the next call read the registry."""
        self._valid_until = 0.0

    def evict(self, number: int) -> None:
        """End the lease of a gateway that missed deliveries, so that the gateway resets its subscribers."""
        self._registry.evict(number)
        self.invalidate()

    def close(self) -> None:
        self._registry.close()

    def _refresh(self, *, fresh: bool = False) -> None:
        now = self._clock.monotonic()
        if fresh or now >= self._valid_until:
            self._gateways, self._fan_out = self._registry.gateways(), self._registry.fan_out()
            self._valid_until = now + CACHE_SECONDS


class ClientCache:
    """Open connections to gateways, by address."""

    def __init__(self, secret: str, connect: Callable[[str, str, str], IngestClient] = open_client) -> None:
        self._secret, self._connect = secret, connect
        self._clients: dict[str, IngestClient] = {}

    def get(self, address: str) -> IngestClient:
        """Return the open connection or a new one. Raise PipelineError E6301 if it cannot connect."""
        client = self._clients.get(address)
        if client is None:
            client = self._connect(address, self._secret, f"worker {os.getpid()}")
            self._clients[address] = client
        return client

    def discard(self, address: str) -> None:
        """Close a connection. The next `get` reconnects."""
        client = self._clients.pop(address, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for address in list(self._clients):
            self.discard(address)


journals: ConnectionCache[CollectionJournal] = ConnectionCache(open_journal)
registries: ConnectionCache[SubscriptionRegistry] = ConnectionCache(SubscriptionRegistry)
gateways: ConnectionCache[GatewayCache] = ConnectionCache(
    lambda url: GatewayCache(SubscriptionRegistry(url), SystemClock())
)
client_cache: ConnectionCache[ClientCache] = ConnectionCache(ClientCache)
"""Maps the ingest secret to the connections that were opened with it."""


def close_connections() -> None:
    """Close all cached stores and connections of this process. They open again on use."""
    for cache in (client_cache, gateways, registries, journals):
        cache.close()


def set_index_limit(max_bytes: int) -> None:
    """Bound the bytes of index segments that this process keeps mapped."""
    segment.worker_cache.max_bytes = max_bytes


_frozen_versions: deque[int] = deque(maxlen=1)
"""The index version whose objects were frozen last in this process."""


def freeze_kept_objects(index_version: int) -> None:
    """Exclude what this worker keeps from later garbage collections. Once per index version, and only on Spark.

    Call it at the end of a task. pyspark collects all generations after every task, and a worker keeps about 30,000
    objects (index, filters, connections), which took 6-10 ms a task. The collection before `gc.freeze` keeps garbage
    of this task from being frozen too.
    """
    if index_version not in _frozen_versions and TaskContext.get() is not None:
        _frozen_versions.append(index_version)
        gc.collect()
        gc.freeze()
