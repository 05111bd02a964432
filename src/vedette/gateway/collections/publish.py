"""Publishes the changes that the pipeline delivers: at once, or in causal order at the end of a batch.

`CollectionBroker` adds and removes streams. A change that cannot be published breaks the stream's chain, so the stream
must resync.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from vedette.gateway.collections.stream import CollectionStream, DecodedChange, MatchKind, StreamState
from vedette.transport.ingest_messages import (
    Complete,
    Deliver,
    DeliveredChange,
    PartitionStatus,
    Status,
    WindowResult,
)
from vedette.transport.receiver import (
    BatchCompleted,
    ChangeReceiver,
    MatchedChange,
    PartitionReset,
    UnfilteredChange,
)

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Broker

__all__ = ["CollectionPublisher"]

log = logging.getLogger(__name__)
ResyncStreams: TypeAlias = Callable[[Iterable[CollectionStream], str], None]


class CollectionPublisher:
    """Publishes delivered changes. `resync` closes streams and notifies their subscribers."""

    def __init__(self, broker: Broker, resync: ResyncStreams) -> None:
        self._broker, self._resync = broker, resync
        self._ingest = ChangeReceiver()
        self.streams_by_subscription_id: dict[int, CollectionStream] = {}
        """Streams by the numeric subscription id of the registry."""
        self._standing: set[CollectionStream] = set()
        self._causal_pending: set[CollectionStream] = set()
        """Streams with causal ordering that have unpublished changes."""
        self._expected = 0
        self._early_changes: dict[int, list[MatchedChange | WindowResult]] = {}
        """Changes for unknown subscription ids, kept while a registration is pending."""
        self._states: dict[int, str] = {}
        """Last reported status by partition."""
        self.completed_offset = 0
        """Journal offset up to which all partitions are published."""
        self._version = -1
        """Registry version of the last completed batch. Subscriptions up to this version were part of it."""
        self.events = 0
        """Number of events published to collection streams."""

    # --- streams ------------------------------------------------------------------------------------------------

    def registration_started(self) -> None:
        """Note a pending registration. Changes for unknown ids may belong to it and are kept."""
        self._expected += 1

    def registration_finished(self) -> None:
        """Note the end of a registration, successful or not."""
        self._expected -= 1
        if not self._expected:
            self._early_changes.clear()

    def add(self, stream: CollectionStream, states: Mapping[int, str]) -> None:
        """Add a registered stream. `states`: status of its partitions, unless a newer status has arrived."""
        self._ingest.track_epochs(stream.partition_epochs)
        self._states = {**states, **self._states}
        self.streams_by_subscription_id.update(dict.fromkeys(stream.subscription_ids, stream))
        self._standing.add(stream)

    def publish_early(self, stream: CollectionStream) -> None:
        """Publish the changes that arrived for a stream before its ids were known."""
        for number in stream.subscription_ids:
            for told in self._early_changes.pop(number, ()):
                if isinstance(told, WindowResult):
                    self._window(told)
                else:
                    self._publish_change(told)
        if stream.version <= self._version:  # the batch's end arrived early, too, and is not repeated
            self._mark_live(stream)

    def forget_early(self) -> None:
        self._early_changes.clear()

    def remove(self, stream: CollectionStream) -> None:
        self._standing.discard(stream)
        self._causal_pending.discard(stream)
        for number in stream.subscription_ids:
            self.streams_by_subscription_id.pop(number, None)
            self._ingest.remove_subscription(number)

    def published_offset(self, stream: CollectionStream) -> int:
        return self.completed_offset if stream.state is StreamState.LIVE else stream.start_offset

    # --- deliveries ---------------------------------------------------------------------------------------------

    def take(self, frame: Deliver | Complete | Status) -> None:
        """Process one frame of an ingest link. Frames arrive in order."""
        for output in self._ingest.receive(frame):
            match output:
                case MatchedChange():
                    self._publish_change(output)
                case UnfilteredChange(change=record):
                    self._unfiltered(record)
                case WindowResult():
                    self._window(output)
                case PartitionReset(partition=partition):
                    self._resync(self._following(partition), "generation")
                case BatchCompleted():
                    assert isinstance(frame, Complete)
                    self._complete(output.offset, frame.version)
                case PartitionStatus():
                    self._status(output)

    def _publish_change(self, told: MatchedChange) -> None:
        """Publish a change to every matching stream: at once, or with causal ordering when its batch is complete."""
        change = DecodedChange(told.change)
        for reason, numbers in zip(_REASONS, told[1:], strict=True):
            for number in numbers:
                stream = self.streams_by_subscription_id.get(number)
                if stream is None:
                    if self._expected:
                        self._early_changes.setdefault(number, []).append(_only(told.change, number, reason))
                elif not stream.accept(told.change):
                    continue
                elif stream.causal_buffer is None:
                    self._tell(stream, change, reason)
                elif stream.causal_buffer.add(told.change.offset, (change, reason)):
                    self._causal_pending.add(stream)
                else:
                    self._resync([stream], "overflow")

    def _tell(self, stream: CollectionStream, change: DecodedChange, reason: MatchKind) -> None:
        if stream.state is StreamState.CLOSED:
            return
        try:
            seq, tail = stream.append_change(change, reason)
        except Exception:
            self._publish_failed(stream)
            return
        self.say(stream, seq, tail)

    def _window(self, told: WindowResult) -> None:
        stream = self.streams_by_subscription_id.get(told.subscription)
        if stream is None:
            if self._expected:
                self._early_changes.setdefault(told.subscription, []).append(told)
            return
        try:
            seq, tail = stream.append_window(told, self.completed_offset)
        except Exception:
            self._publish_failed(stream)
            return
        self.say(stream, seq, tail)

    def say(self, stream: CollectionStream, seq: int, tail: bytes) -> None:
        """Queue a numbered and encoded event of a stream."""
        self.events += 1
        self._broker.publish(stream, seq, tail)

    def _publish_failed(self, stream: CollectionStream) -> None:
        """Resync a stream after a change could not be encoded or evaluated. It must not be lost silently."""
        extra = {"action": "collection.untold", "tenant": stream.desk.tenant, "stream": stream.stream_id}
        log.exception("A change could not be delivered; the stream must resync", extra=extra)
        self._resync([stream], "gap")

    def _unfiltered(self, record: DeliveredChange) -> None:
        """Evaluate an unfiltered change against all local streams of its collection. The pipeline sends changes
        unfiltered while its index is not reliable.
        """
        change = DecodedChange(record)
        for number, stream in list(self.streams_by_subscription_id.items()):
            if stream.state is not StreamState.LIVE or record.offset <= stream.start_offset:
                continue  # the batch that includes the stream delivers the change
            if stream.desk.tenant == record.tenant and record.collection in stream.collections:
                self._judge(stream, number, change)

    def _judge(self, stream: CollectionStream, number: int, change: DecodedChange) -> None:
        try:
            reason = stream.classify(change) if not stream.wanted.windowed else None
        except Exception:
            self._publish_failed(stream)
            return
        if reason is not None:
            self._publish_change(_only(change.record, number, reason))

    def _complete(self, offset: int, version: int) -> None:
        """Handle the end of a batch: streams that were part of it have no unpublished changes up to its offset."""
        self.completed_offset, self._version = offset, version
        for stream in [stream for stream in self._standing if stream.version <= version]:
            self._mark_live(stream)
        for stream in [stream for stream in self._causal_pending if stream.state is StreamState.LIVE]:
            self._release(stream)

    def _mark_live(self, stream: CollectionStream) -> None:
        """Mark a stream as live: a batch that included it is complete."""
        if stream.state is StreamState.REGISTERED:
            stream.state = StreamState.LIVE
            self._standing.discard(stream)
            self._release(stream)

    def _release(self, stream: CollectionStream) -> None:
        """Publish buffered changes up to the completed offset, in causal order."""
        for change, reason in (
            stream.causal_buffer.release_up_to(self.completed_offset) if stream.causal_buffer else ()
        ):
            self._tell(stream, change, reason)
        if not stream.causal_buffer:
            self._causal_pending.discard(stream)

    def _status(self, status: PartitionStatus) -> None:
        before = self._states.get(status.partition)
        self._states[status.partition] = status.state
        if status.state == "stale" and before not in (None, "stale"):
            self._resync(self._following(status.partition), "gap")
        if before == "shedding" and status.state != "shedding":
            # Shedding has ended. Low-priority streams missed changes and must resync.
            low = [stream for stream in self._following(status.partition) if stream.wanted.low_priority]
            self._resync(low, "overflow")

    def _following(self, partition: int) -> list[CollectionStream]:
        return [
            stream
            for stream in self.streams_by_subscription_id.values()
            if partition in stream.partition_epochs
        ]


_REASONS = tuple(MatchKind)


def _only(record: DeliveredChange, number: int, reason: MatchKind) -> MatchedChange:
    """Return the change addressed to a single subscription."""
    return MatchedChange(record, *((number,) if reason is each else () for each in MatchKind))
