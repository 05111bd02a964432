"""A gateway's side of the ingest link, without I/O: frames in, what subscribers are to be told out, each thing once.

Theory of operation. The pipeline delivers at least once: a batch that failed comes again, whole, with the same numbers.

- A plain change is a repeat iff it is not past the last (epoch, seq) of its partition: within a partition changes come
  in order, and a batch that runs again begins at or before where it was.
- A change marked `again` is older than what others were told. Repeats of it are known by subscription and partition,
  and only until a later batch is complete: batches follow each other, so then the one with it is over.
- What a window told is a repeat iff its position is not past the last one of its subscription.
- A partition whose epoch rises has lost its past: its subscribers must resync, once.
- `complete` frames come per share of the partitions. When all shares of a batch have said so, everything up to its
  offset is told, also of partitions where nothing happened: that is what causal order waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from vedette.pipeline.ingest_frames import (
    Complete,
    Deliver,
    DeliveredChange,
    PartitionStatus,
    Status,
    WindowTold,
)

__all__ = ["IngestDesk", "Reached", "Resync", "Told", "Unfiltered"]


class Told(NamedTuple):
    """A change for one or more subscriptions of this gateway."""

    change: DeliveredChange
    enter: tuple[int, ...]
    update: tuple[int, ...]
    leave: tuple[int, ...]


class Unfiltered(NamedTuple):
    """A change to be held against all subscriptions of its collection."""

    change: DeliveredChange


class Resync(NamedTuple):
    """What was told of a partition does not join what comes: whoever follows it must begin anew."""

    partition: int
    epoch: int
    reason: str


class Reached(NamedTuple):
    """Everything up to this offset has been told, of all partitions."""

    offset: int


Output: TypeAlias = Told | Unfiltered | Resync | Reached | PartitionStatus | WindowTold


class IngestDesk:
    """One per gateway; it outlives links. `take` every frame in the order of its arrival."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        """Partition ▸ (epoch, seq) of its last plain change."""
        self._epochs: dict[int, int] = {}
        self._again: dict[tuple[int, int], tuple[int, int]] = {}
        """(subscription, partition) ▸ last place that was told again, in the present batch."""
        self._again_before: dict[tuple[int, int], tuple[int, int]] = {}
        """The same of the batch before, which may still come again."""
        self._windows: dict[int, int] = {}
        """Subscription ▸ the last position that its windows told."""
        self._batch_end = -1
        self._shares: set[int] = set()

    def know(self, epochs: Mapping[int, int]) -> None:
        """Somebody begins to follow these partitions, in these epochs: a later one is a loss from now on."""
        for partition, epoch in epochs.items():
            self._epochs.setdefault(partition, epoch)

    def take(self, frame: Deliver | Complete | Status) -> list[Output]:
        match frame:
            case Deliver(changes=changes, windows=windows):
                told = [output for change in changes for output in self._change(change)]
                return [*told, *filter(self._is_news, windows)]
            case Complete():
                return self._complete(frame)
            case Status(partitions=partitions):
                return [output for status in partitions for output in self._status(status)]

    def _is_news(self, told: WindowTold) -> bool:
        known = self._windows.get(told.subscription, 0)
        self._windows[told.subscription] = max(known, told.position)
        return told.position > known

    def forget(self, subscription: int) -> None:
        """A subscription with windows has ended."""
        self._windows.pop(subscription, None)

    def _change(self, change: DeliveredChange) -> list[Output]:
        found = self._epoch(change.partition, change.epoch, "the log of this partition was lost")
        place = (change.epoch, change.seq)
        if change.epoch < self._epochs[change.partition]:
            return found  # of before the loss: nobody has a use for it
        if change.again:
            return [*found, *self._told_again(change, place)]
        if place <= self._last.get(change.partition, (0, 0)):
            return found
        self._last[change.partition] = place
        if change.unfiltered:
            return [*found, Unfiltered(change)]
        return [*found, Told(change, tuple(change.enter), tuple(change.update), tuple(change.leave))]

    def _told_again(self, change: DeliveredChange, place: tuple[int, int]) -> list[Output]:
        def fresh(numbers: list[int]) -> tuple[int, ...]:
            return tuple(number for number in numbers if self._is_fresh(number, change.partition, place))

        told = Told(change, fresh(change.enter), fresh(change.update), fresh(change.leave))
        for number in (*told.enter, *told.update, *told.leave):
            self._again[number, change.partition] = place
        return [told] if told.enter or told.update or told.leave else []

    def _is_fresh(self, number: int, partition: int, place: tuple[int, int]) -> bool:
        key = number, partition
        return place > max(self._again.get(key, (0, 0)), self._again_before.get(key, (0, 0)))

    def _complete(self, frame: Complete) -> list[Output]:
        if frame.offset > self._batch_end:
            self._batch_end, self._shares = frame.offset, set()
            self._again_before, self._again = self._again, {}
        elif frame.offset < self._batch_end:
            return []
        before = len(self._shares)
        self._shares.add(frame.share)
        done = len(self._shares) == frame.shares and len(self._shares) > before
        return [Reached(frame.offset)] if done else []

    def _status(self, status: PartitionStatus) -> list[Output]:
        return [*self._epoch(status.partition, status.epoch, status.reason), status]

    def _epoch(self, partition: int, epoch: int, reason: str) -> list[Output]:
        known = self._epochs.setdefault(partition, epoch)
        if epoch <= known:
            return []
        self._epochs[partition] = epoch
        return [Resync(partition, epoch, reason)]
