"""Live gateways as a worker knows them: read from the registry and cached briefly."""

from __future__ import annotations

from vedette.clock import Clock, SystemClock
from vedette.pipeline.worker_cache import ConnectionCache
from vedette.subscriptions.registry.registry import Gateway, SubscriptionRegistry

__all__ = ["broadcast_fan_out", "evict_gateway", "invalidate_gateways", "live_gateways"]

CACHE_SECONDS = 0.5
"""Maximum age of the cache in seconds; a failed delivery reads the registry again."""


class GatewayCache:
    def __init__(self, address: str, clock: Clock) -> None:
        self._registry = SubscriptionRegistry(address)
        self._clock = clock
        self._until = 0.0
        self._gateways: list[Gateway] = []
        self._fan_out = 0

    def gateways(self) -> list[Gateway]:
        self._refresh()
        return self._gateways

    def fan_out(self) -> int:
        self._refresh()
        return self._fan_out

    def _refresh(self) -> None:
        now = self._clock.monotonic()
        if now >= self._until:
            self._gateways, self._fan_out = self._registry.gateways(), self._registry.fan_out()
            self._until = now + CACHE_SECONDS

    def forget(self) -> None:
        self._until = 0.0

    def evict_gateway(self, number: int) -> None:
        self._registry.evict(number)
        self.forget()

    def close(self) -> None:
        self._registry.close()


_members: ConnectionCache[GatewayCache] = ConnectionCache(
    lambda address: GatewayCache(address, SystemClock())
)


def live_gateways(registry: str) -> list[Gateway]:
    """Gateways whose lease has not expired."""
    return _members(registry).gateways()


def broadcast_fan_out(registry: str) -> int:
    """Number of gateways that receive unfiltered changes; 0 while the index is reliable."""
    return _members(registry).fan_out()


def evict_gateway(registry: str, number: int) -> None:
    """Deliveries for this gateway are dropped: record it, so that the gateway learns that its lease was lost."""
    _members(registry).evict_gateway(number)


def invalidate_gateways(registry: str) -> None:
    """The next call reads the registry."""
    _members(registry).forget()
