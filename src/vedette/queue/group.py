"""Consumers, and the groups that share work between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from vedette.queue.entry import Delivery

if TYPE_CHECKING:
    from vedette.queue.match_queue import MatchQueue

__all__ = ["Consumer", "ConsumerGroup"]


class ConsumerGroup:
    """Interchangeable consumers. A watch without a group is a group of one."""

    __slots__ = ("_busy", "consumers", "in_flight", "key", "name", "queues")

    def __init__(self, key: Hashable, name: str | None) -> None:
        self.key, self.name = key, name
        self.consumers: list[Consumer] = []
        self.queues: list[MatchQueue] = []
        self.in_flight = 0
        """Open deliveries of its consumers."""
        self._busy: Counter[Hashable] = Counter()

    def is_key_blocked(self, key: Hashable) -> bool:
        """True if an element with this serialization key is delivered or delayed."""
        return key in self._busy

    def block_key(self, key: Hashable) -> None:
        self._busy[key] += 1

    def unblock_key(self, key: Hashable) -> None:
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]
            for queue in self.queues:
                queue.unblock_key(key)


class Consumer:
    """One consume watch, its limits, and its deliveries."""

    __slots__ = (
        "active",
        "deliveries",
        "group",
        "group_max_in_flight",
        "max_unacked",
        "number",
        "queue",
        "watch",
    )

    def __init__(
        self, number: int, group: ConsumerGroup, *, bound: int, group_bound: int | None, watch: Any
    ) -> None:
        self.number, self.group, self.watch = number, group, watch
        self.max_unacked = bound
        """Maximum number of open deliveries (`buffer`)."""
        self.group_max_in_flight = group_bound
        """Maximum number of open deliveries in the group (`max_in_flight`)."""
        self.deliveries: dict[str, Delivery] = {}
        self.active = True
        self.queue: MatchQueue | None = None

    @property
    def has_capacity(self) -> bool:
        return self.active and len(self.deliveries) < self.max_unacked

    def fair_share(self, limit: int | None) -> int:
        """How many elements one poll may claim: a fair share of the waiting elements, within all limits."""
        assert self.queue is not None
        group = self.group
        if not self.has_capacity:
            return 0
        rivals = sum(consumer.has_capacity for consumer in group.consumers)
        fair = max(1, -(-(len(self.queue) + group.in_flight) // rivals) - len(self.deliveries))
        room = min(fair, self.max_unacked - len(self.deliveries))
        if self.group_max_in_flight is not None:
            room = min(room, self.group_max_in_flight - group.in_flight)
        return max(0, room if limit is None else min(room, limit))
