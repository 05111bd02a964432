"""Which gateways there are, as a worker knows it: read from the registry, for a moment at a time."""

from __future__ import annotations

from functools import lru_cache

from vedette.clock import Clock, SystemClock
from vedette.subscriptions.registry import Gateway, SubscriptionRegistry

__all__ = ["forget_gateways", "gateways_of"]

FRESH_SECONDS = 0.5
"""How old the knowledge may be; who fails to reach a gateway asks anew."""


class _Members:
    def __init__(self, address: str, clock: Clock) -> None:
        self._registry = SubscriptionRegistry(address)
        self._clock = clock
        self._until = 0.0
        self._gateways: list[Gateway] = []

    def gateways(self) -> list[Gateway]:
        now = self._clock.monotonic()
        if now >= self._until:
            self._gateways, self._until = self._registry.gateways(), now + FRESH_SECONDS
        return self._gateways

    def forget(self) -> None:
        self._until = 0.0


@lru_cache(maxsize=8)
def _members(address: str) -> _Members:
    return _Members(address, SystemClock())


def gateways_of(registry: str) -> list[Gateway]:
    """Gateways whose lease has not run out."""
    return _members(registry).gateways()


def forget_gateways(registry: str) -> None:
    """The next question is asked of the registry."""
    _members(registry).forget()
