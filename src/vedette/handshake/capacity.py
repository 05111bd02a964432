"""Admission to the file queue: how many tasks each folder watch may queue.

Theory of operation. A watch requests capacity before it queues tasks and releases it when a task ends. The space in use
is the larger of the granted space and the queue depth, because other producers may fill the queue too. At the high
watermark throttling begins; it ends when use falls below the low watermark. While throttling, only watches below
`min_per_watch` are granted more, so that a large folder cannot starve a small one. Requests beyond the total capacity
or the share of one watch are refused. A refused watch keeps its paths and asks again; nothing is dropped
(docs/design/decisions/0053-handshake-capacity.md).

The functions take the complete state and return the next one. `tables.system_state` stores it in one transaction, which
makes requests and releases atomic across threads and processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vedette.handshake.config import CoordinatorConfig
from vedette.handshake.validation import require

__all__ = ["Capacity", "Grant", "RefusalReason", "reconcile", "release", "request"]


class RefusalReason(StrEnum):
    """Why a request was refused, as logs and `wqm` show it."""

    FULL = "the queue is full"
    THROTTLED = "the queue is above its high watermark"
    SHARE = "the watch has reached its share of the queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much of the queue each watch uses."""

    tasks_by_watch: Mapping[str, int] = field(default_factory=dict)
    """Queued tasks by watch id; watches without tasks are not listed."""
    throttling: bool = False

    @property
    def allocated(self) -> int:
        return sum(self.tasks_by_watch.values())

    def validate(self, config: CoordinatorConfig) -> None:
        """Raise AssertionError if no sequence of requests and releases leads to this state."""
        assert all(0 < count <= config.max_per_watch for count in self.tasks_by_watch.values()), self
        assert self.allocated <= config.total_capacity, self


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The answer to a request: everything that was requested, or nothing with a reason."""

    granted: bool
    capacity: Capacity
    reason: RefusalReason | None = None


def request(
    capacity: Capacity, watch_id: str, count: int, queue_depth: int, config: CoordinatorConfig
) -> Grant:
    """Request space for `count` tasks.

    `queue_depth` is the number of queued tasks, including those of other producers.
    """
    require(count > 0, "count", count, "a whole number from 1")
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
    """Release the space of `count` tasks. Never fails: a larger count releases all, an unknown watch nothing."""
    require(count >= 0, "count", count, "a whole number from 0")
    left = max(0, capacity.tasks_by_watch.get(watch_id, 0) - count)
    others = {watch: held for watch, held in capacity.tasks_by_watch.items() if watch != watch_id}
    kept = {**others, watch_id: left} if left else others
    return _update_throttling(replace(capacity, tasks_by_watch=kept), queue_depth, config)


def reconcile(
    capacity: Capacity, held: Mapping[str, int], queue_depth: int, config: CoordinatorConfig
) -> Capacity:
    """Replace the counts by the actual number of queued tasks per watch, at start and periodically.

    Counts drift, because a task that is put twice is one task and a lost worker releases nothing.
    """
    kept = {watch: count for watch, count in held.items() if count > 0}
    return _update_throttling(replace(capacity, tasks_by_watch=kept), queue_depth, config)


def _update_throttling(capacity: Capacity, queue_depth: int, config: CoordinatorConfig) -> Capacity:
    used = max(capacity.allocated, queue_depth)
    return replace(capacity, throttling=_throttling(capacity.throttling, used, config))


def _throttling(before: bool, used: int, config: CoordinatorConfig) -> bool:
    mark = config.low_watermark if before else config.high_watermark
    return used >= mark * config.total_capacity
