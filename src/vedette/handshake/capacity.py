"""Who may put how much into the queue: seeds/watch-queue-handshake.md, Coordination Protocol.

Theory of operation. A watch asks before it queues and gives back when its task is done. What is in use is the
larger of what was granted and what the queue holds (others may fill it too, ruling 20). From the high watermark on
the coordinator throttles, until use falls below the low one: then only watches that hold less than `min_per_watch`
get more, so that a large folder cannot starve a small one. Beyond the total, or beyond one watch's share,
everything is refused.

A refusal drops nothing: the watch keeps the path and asks again (ruling 19).

The functions take the whole state and return the next; whoever stores it does so in one step (`tables.ledger`), which
makes request and release atomic across threads and processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vedette.handshake.config import CoordinatorConfig, refuse_unless

__all__ = ["Capacity", "Grant", "RefusalReason", "reconcile", "release", "request", "withdrawn"]


class RefusalReason:
    """Why a request was refused: words for logs and for `wqm`."""

    FULL = "the queue is full"
    THROTTLED = "the queue is above its high watermark"
    SHARE = "the watch holds its whole share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the watches hold now."""

    tasks_by_watch: Mapping[str, int] = field(default_factory=dict)
    """By watch; only those that hold something."""
    throttling: bool = False

    @property
    def allocated(self) -> int:
        return sum(self.tasks_by_watch.values())

    def validate(self, config: CoordinatorConfig) -> None:
        """Raises when this is a state that no sequence of requests and releases leads to."""
        assert all(0 < count <= config.max_per_watch for count in self.tasks_by_watch.values()), self
        assert self.allocated <= config.total_capacity, self


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The answer to a request: all that was asked for, or nothing and why."""

    granted: bool
    capacity: Capacity
    reason: str | None = None


def request(
    capacity: Capacity, watch_id: str, count: int, queue_depth: int, config: CoordinatorConfig
) -> Grant:
    """`queue_depth`: tasks in the queue now, whoever put them there."""
    refuse_unless(count > 0, "count", count, "a whole number from 1")
    used = max(capacity.allocated, queue_depth)
    now = replace(capacity, throttling=_throttling(capacity.throttling, used, config))
    holds = capacity.tasks_by_watch.get(watch_id, 0)
    if used + count > config.total_capacity:
        return Grant(granted=False, capacity=now, reason=RefusalReason.FULL)
    if holds + count > config.max_per_watch:
        return Grant(granted=False, capacity=now, reason=RefusalReason.SHARE)
    if now.throttling and holds + count > config.min_per_watch:
        return Grant(granted=False, capacity=now, reason=RefusalReason.THROTTLED)
    granted = replace(now, tasks_by_watch={**capacity.tasks_by_watch, watch_id: holds + count})
    return Grant(granted=True, capacity=_update_throttling(granted, queue_depth, config))


def release(
    capacity: Capacity, watch_id: str, count: int, queue_depth: int, config: CoordinatorConfig
) -> Capacity:
    """Give back; more than is held gives back all, of an unknown watch nothing: a release must never fail."""
    refuse_unless(count >= 0, "count", count, "a whole number from 0")
    left = max(0, capacity.tasks_by_watch.get(watch_id, 0) - count)
    others = {watch: held for watch, held in capacity.tasks_by_watch.items() if watch != watch_id}
    kept = {**others, watch_id: left} if left else others
    return _update_throttling(replace(capacity, tasks_by_watch=kept), queue_depth, config)


def withdrawn(capacity: Capacity, watch_id: str, queue_depth: int, config: CoordinatorConfig) -> Capacity:
    """A watch is gone, and all it held with it."""
    return release(capacity, watch_id, capacity.tasks_by_watch.get(watch_id, 0), queue_depth, config)


def reconcile(
    capacity: Capacity, held: Mapping[str, int], queue_depth: int, config: CoordinatorConfig
) -> Capacity:
    """What each watch has in the queue is what it holds: for a start, and now and then.

    A task that was put twice is one task, and a lost worker releases nothing; so counts drift, and are set right here.
    """
    kept = {watch: count for watch, count in held.items() if count > 0}
    return _update_throttling(replace(capacity, tasks_by_watch=kept), queue_depth, config)


def _update_throttling(capacity: Capacity, queue_depth: int, config: CoordinatorConfig) -> Capacity:
    used = max(capacity.allocated, queue_depth)
    return replace(capacity, throttling=_throttling(capacity.throttling, used, config))


def _throttling(before: bool, used: int, config: CoordinatorConfig) -> bool:
    mark = config.low_watermark if before else config.high_watermark
    return used >= mark * config.total_capacity
