"""A gateway's side of the ingest link, without I/O: frames in, what subscribers are to be told out.

Theory of operation. The pipeline delivers at least once: a batch that failed comes again, whole, with the same numbers,
and a driver that was killed may leave tasks behind that deliver for a while beside those of the next one.

- A plain change is a repeat iff it is not past the last (epoch, seq) of its partition: within a partition changes come
  in order, and a batch that runs again begins at or before where it was.
- A change marked `again` is older than what others were told, so it is handed on always. Whoever it is for knows how
  far it has heard of the partition, and whether this is a repeat (`CollectionStream.hears`).
- What a window told is a repeat iff its position is not past the last one of its subscription.
- A partition whose epoch rises has lost its past: its subscribers must resync, once.
- `complete` frames come per share of the partitions. When all shares of a batch have said so, everything up to its
  offset is told, also of partitions where nothing happened: that is what causal order waits for. A batch is known by
  its offset and its version: one that only brings new subscriptions ends at the offset of the one before. The driver
  says it again for all shares at once when a batch is committed, since a worker's word may be lost on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from vedette.transport.ingest_messages import (
    Complete,
    Deliver,
    DeliveredChange,
    PartitionStatus,
    Status,
    WindowResult,
)

__all__ = ["BatchCompleted", "ChangeReceiver", "MatchedChange", "PartitionReset", "UnfilteredChange"]


class MatchedChange(NamedTuple):
    """A change for one or more subscriptions of this gateway."""

    change: DeliveredChange
    enter: tuple[int, ...]
    update: tuple[int, ...]
    leave: tuple[int, ...]


class UnfilteredChange(NamedTuple):
    """A change to be held against all subscriptions of its collection."""

    change: DeliveredChange


class PartitionReset(NamedTuple):
    """What was told of a partition does not join what comes: whoever follows it must begin anew."""

    partition: int
    epoch: int
    reason: str


class BatchCompleted(NamedTuple):
    """Everything up to this offset has been told, of all partitions."""

    offset: int


ReceiverOutput: TypeAlias = (
    MatchedChange | UnfilteredChange | PartitionReset | BatchCompleted | PartitionStatus | WindowResult
)


class ChangeReceiver:
    """One per gateway; it outlives links. `take` every frame in the order of its arrival."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        """Partition ▸ (epoch, seq) of its last plain change."""
        self._epochs: dict[int, int] = {}
        self._windows: dict[int, int] = {}
        """Subscription ▸ the last position that its windows told."""
        self._batch = (-1, -1)
        """Offset and version of the last one that any share is complete of."""
        self._is_complete = False
        self._shares: set[int] = set()

    def track_epochs(self, epochs: Mapping[int, int]) -> None:
        """Somebody begins to follow these partitions, in these epochs: a later one is a loss from now on."""
        for partition, epoch in epochs.items():
            self._epochs.setdefault(partition, epoch)

    def receive(self, frame: Deliver | Complete | Status) -> list[ReceiverOutput]:
        match frame:
            case Deliver(changes=changes, windows=windows):
                told = [output for change in changes for output in self._change(change)]
                return [*told, *filter(self._is_news, windows)]
            case Complete():
                return self._complete(frame)
            case Status(partitions=partitions):
                return [output for status in partitions for output in self._status(status)]

    def _is_news(self, told: WindowResult) -> bool:
        known = self._windows.get(told.subscription, 0)
        self._windows[told.subscription] = max(known, told.position)
        return told.position > known

    def remove_subscription(self, subscription: int) -> None:
        """A subscription with windows has ended."""
        self._windows.pop(subscription, None)

    def _change(self, change: DeliveredChange) -> list[ReceiverOutput]:
        found = self._epoch(change.partition, change.epoch, "the log of this partition was lost")
        place = (change.epoch, change.seq)
        if change.epoch < self._epochs[change.partition]:
            return found  # of before the loss: nobody has a use for it
        if not change.again:
            if place <= self._last.get(change.partition, (0, 0)):
                return found
            self._last[change.partition] = place
        if change.unfiltered:
            return [*found, UnfilteredChange(change)]
        return [*found, MatchedChange(change, tuple(change.enter), tuple(change.update), tuple(change.leave))]

    def _complete(self, frame: Complete) -> list[ReceiverOutput]:
        batch = (frame.offset, frame.version)
        if batch > self._batch:
            self._batch, self._shares, self._is_complete = batch, set(), False
        if batch < self._batch or self._is_complete:
            return []
        self._shares.add(frame.share)
        self._is_complete = frame.shares == 1 or len(self._shares) == frame.shares
        return [BatchCompleted(frame.offset)] if self._is_complete else []

    def _status(self, status: PartitionStatus) -> list[ReceiverOutput]:
        return [*self._epoch(status.partition, status.epoch, status.reason), status]

    def _epoch(self, partition: int, epoch: int, reason: str) -> list[ReceiverOutput]:
        known = self._epochs.setdefault(partition, epoch)
        if epoch <= known:
            return []
        self._epochs[partition] = epoch
        return [PartitionReset(partition, epoch, reason)]
