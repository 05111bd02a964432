"""Receiving half of the ingest link, without I/O: frames in, deduplicated changes and completed offsets out.

Theory of operation. The pipeline delivers at least once. A failed batch is sent again as a whole with the same numbers,
and tasks of a killed driver may go on delivering for a while beside those of the next driver.

- A regular change is a duplicate if its (epoch, seq) is not above the last one of its partition. Changes of a partition
  arrive in order, and a repeated batch starts at or before its previous position.
- A change marked `is_backfill` is older than what other subscriptions have received, so it is always passed on. Each
  subscription knows its own position in the partition and detects duplicates (`CollectionStream.accept`).
- A window result is a duplicate if its position is not above the last one of its subscription.
- A partition whose epoch increases has lost its history: its subscribers must resync once.
- `complete` frames arrive per share of the partitions. When all shares of a batch are complete, everything up to its
  offset has been delivered, including for idle partitions; causal ordering waits for this. A batch is identified by
  offset and version, because a batch that only adds subscriptions ends at the offset of the batch before. The driver
  repeats the frame for all shares when a batch is committed, since a worker's frame may be lost.
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
    """A change that matches one or more subscriptions of this gateway."""

    change: DeliveredChange
    enter: tuple[int, ...]
    update: tuple[int, ...]
    leave: tuple[int, ...]


class UnfilteredChange(NamedTuple):
    """A change that the gateway must evaluate against all subscriptions of its collection."""

    change: DeliveredChange


class PartitionReset(NamedTuple):
    """A partition lost its history; its subscribers must resync."""

    partition: int
    epoch: int
    reason: str


class BatchCompleted(NamedTuple):
    """Everything up to this offset has been delivered, for all partitions."""

    offset: int


ReceiverOutput: TypeAlias = (
    MatchedChange | UnfilteredChange | PartitionReset | BatchCompleted | PartitionStatus | WindowResult
)


class ChangeReceiver:
    """One per gateway; it outlives links. Call `receive` for every frame in order of arrival."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        """Partition ▸ (epoch, seq) of its last regular change."""
        self._epochs: dict[int, int] = {}
        self._windows: dict[int, int] = {}
        """Subscription ▸ last position of its window results."""
        self._latest_batch = (-1, -1)
        """Offset and version of the latest batch with a completed share."""
        self._is_complete = False
        self._completed_shares: set[int] = set()

    def track_epochs(self, epochs: Mapping[int, int]) -> None:
        """Track partitions of a new subscription. A higher epoch is a loss from now on."""
        for partition, epoch in epochs.items():
            self._epochs.setdefault(partition, epoch)

    def receive(self, frame: Deliver | Complete | Status) -> list[ReceiverOutput]:
        match frame:
            case Deliver(changes=changes, windows=windows):
                outputs = [output for change in changes for output in self._change(change)]
                return [*outputs, *filter(self._is_new, windows)]
            case Complete():
                return self._complete(frame)
            case Status(partitions=partitions):
                return [output for status in partitions for output in self._status(status)]

    def _is_new(self, result: WindowResult) -> bool:
        known = self._windows.get(result.subscription, 0)
        self._windows[result.subscription] = max(known, result.position)
        return result.position > known

    def remove_subscription(self, subscription: int) -> None:
        """Forget the window position of an ended subscription."""
        self._windows.pop(subscription, None)

    def _change(self, change: DeliveredChange) -> list[ReceiverOutput]:
        outputs = self._epoch(change.partition, change.epoch, "the log of this partition was lost")
        position = (change.epoch, change.seq)
        if change.epoch < self._epochs[change.partition]:
            return outputs  # from before the loss; no subscriber needs it
        if not change.is_backfill:
            if position <= self._last.get(change.partition, (0, 0)):
                return outputs
            self._last[change.partition] = position
        if change.unfiltered:
            return [*outputs, UnfilteredChange(change)]
        return [
            *outputs,
            MatchedChange(change, tuple(change.enter), tuple(change.update), tuple(change.leave)),
        ]

    def _complete(self, frame: Complete) -> list[ReceiverOutput]:
        batch = (frame.offset, frame.index_version)
        if batch > self._latest_batch:
            self._latest_batch, self._completed_shares, self._is_complete = batch, set(), False
        if batch < self._latest_batch or self._is_complete:
            return []
        self._completed_shares.add(frame.share)
        self._is_complete = frame.shares == 1 or len(self._completed_shares) == frame.shares
        return [BatchCompleted(frame.offset)] if self._is_complete else []

    def _status(self, status: PartitionStatus) -> list[ReceiverOutput]:
        return [*self._epoch(status.partition, status.epoch, status.reason), status]

    def _epoch(self, partition: int, epoch: int, reason: str) -> list[ReceiverOutput]:
        known = self._epochs.setdefault(partition, epoch)
        if epoch <= known:
            return []
        self._epochs[partition] = epoch
        return [PartitionReset(partition, epoch, reason)]
