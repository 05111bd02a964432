"""The open claims of the file queue, by delivery id and by task key.

The registry is pure: it calls neither the engine nor a clock. It holds two kinds of claims. A *held* claim belongs to a
worker. A *deferred* claim belongs to the queue itself: its task waits for its next attempt, and the queue releases the
claim when the delay has passed. `EngineFileQueue` explains why a delay keeps the claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush

__all__ = ["Claim", "ClaimRegistry"]


@dataclass(slots=True)
class Claim:
    """One delivery of a task, until it is acknowledged, released or expired."""

    delivery_id: str
    key: str
    """Key of the task."""
    changed_while_claimed: bool = False
    """True if the same file was queued again while a worker held the task."""
    is_deferred: bool = False
    """True if the queue holds the claim until the delay of the task has passed."""


class ClaimRegistry:
    """Not thread-safe: the queue holds its lock during each call."""

    def __init__(self) -> None:
        self._by_delivery: dict[str, Claim] = {}
        self._by_key: dict[str, Claim] = {}
        self._release_times: list[tuple[datetime, str]] = []
        """Heap of release times and delivery ids of deferred claims. Entries of removed claims are skipped later."""

    def add(self, delivery_id: str, key: str) -> Claim:
        """Register a held claim. It replaces an older claim of the same task."""
        return self._register(Claim(delivery_id, key))

    def defer(self, claim: Claim, until: datetime) -> None:
        """Register a claim as deferred; `take_due` returns it at that time."""
        claim.is_deferred = True
        self._register(claim)
        heappush(self._release_times, (until, claim.delivery_id))

    def remove(self, claim: Claim) -> None:
        """Remove a claim; no effect if it is not registered."""
        self._by_delivery.pop(claim.delivery_id, None)
        if self._by_key.get(claim.key) is claim:
            del self._by_key[claim.key]

    def held(self, delivery_id: str) -> Claim | None:
        """Return the claim if a worker holds it."""
        claim = self._by_delivery.get(delivery_id)
        return None if claim is None or claim.is_deferred else claim

    def by_delivery(self, delivery_id: str) -> Claim | None:
        return self._by_delivery.get(delivery_id)

    def by_key(self, key: str) -> Claim | None:
        return self._by_key.get(key)

    def take_due(self, now: datetime) -> Iterator[Claim]:
        """Yield the deferred claims whose release time has passed. The caller releases and removes them."""
        while self._release_times and self._release_times[0][0] <= now:
            _, delivery_id = heappop(self._release_times)
            claim = self._by_delivery.get(delivery_id)
            if claim is not None:
                yield claim

    def validate(self) -> None:
        """Assert that both indexes agree and that every deferred claim has a release time."""
        for key, claim in self._by_key.items():
            assert claim.key == key, claim
            assert self._by_delivery.get(claim.delivery_id) is claim, claim
        scheduled = {delivery_id for _, delivery_id in self._release_times}
        assert all(
            claim.delivery_id in scheduled for claim in self._by_delivery.values() if claim.is_deferred
        )

    def _register(self, claim: Claim) -> Claim:
        self._by_delivery[claim.delivery_id] = self._by_key[claim.key] = claim
        return claim
