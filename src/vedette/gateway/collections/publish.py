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
        self._receiver = ChangeReceiver()
        self.streams_by_subscription_id: dict[int, CollectionStream] = {}
        """Streams by the numeric subscription id of the registry."""
        self._registered: set[CollectionStream] = set()
        self._causal_pending: set[CollectionStream] = set()
        """Streams with causal ordering that have unpublished changes."""
        self._pending_registrations = 0
        self._early_changes: dict[int, list[MatchedChange | WindowResult]] = {}
        """Changes for unknown subscription ids, kept while a registration is pending."""
        self._states: dict[int, str] = {}
        """Last reported status by partition."""
        self.completed_offset = 0
        """Journal offset up to which all partitions are published."""
        self._completed_version = -1
        """Registry version of the last completed batch. Subscriptions up to this version were part of it."""
        self.events = 0
        """Number of events published to collection streams."""

    # --- streams ------------------------------------------------------------------------------------------------

    def registration_started(self) -> None:
        """Note a pending registration. Changes for unknown ids may belong to it and are kept."""
        self._pending_registrations += 1

    def registration_finished(self) -> None:
        """Note the end of a registration, successful or not."""
        self._pending_registrations -= 1
        if not self._pending_registrations:
            self._early_changes.clear()

    def add(self, stream: CollectionStream, states: Mapping[int, str]) -> None:
        """Add a registered stream. `states`: status of its partitions, unless a newer status has arrived."""
        self._receiver.track_epochs(stream.partition_epochs)
        self._states = {**states, **self._states}
        self.streams_by_subscription_id.update(dict.fromkeys(stream.subscription_ids, stream))
        self._registered.add(stream)

    def publish_early(self, stream: CollectionStream) -> None:
        """Publish the changes that arrived for a stream before its ids were known."""
        for subscription_id in stream.subscription_ids:
            for change in self._early_changes.pop(subscription_id, ()):
                if isinstance(change, WindowResult):
                    self._publish_window(change)
                else:
                    self._publish_change(change)
        if (
            stream.version <= self._completed_version
        ):  # the batch's end arrived early, too, and is not repeated
            self._mark_live(stream)

    def discard_early(self) -> None:
        self._early_changes.clear()

    def remove(self, stream: CollectionStream) -> None:
        self._registered.discard(stream)
        self._causal_pending.discard(stream)
        for number in stream.subscription_ids:
            self.streams_by_subscription_id.pop(number, None)
            self._receiver.remove_subscription(number)

    def published_offset(self, stream: CollectionStream) -> int:
        return self.completed_offset if stream.state is StreamState.LIVE else stream.start_offset

    # --- deliveries ---------------------------------------------------------------------------------------------

    def receive(self, frame: Deliver | Complete | Status) -> None:
        """Process one frame of an ingest link. Frames arrive in order."""
        for output in self._receiver.receive(frame):
            match output:
                case MatchedChange():
                    self._publish_change(output)
                case UnfilteredChange(change=record):
                    self._publish_unfiltered(record)
                case WindowResult():
                    self._publish_window(output)
                case PartitionReset(partition=partition):
                    self._resync(self._streams_of_partition(partition), "generation")
                case BatchCompleted():
                    assert isinstance(frame, Complete)
                    self._complete(output.offset, frame.version)
                case PartitionStatus():
                    self._status(output)

    def _publish_change(self, matched: MatchedChange) -> None:
        """Publish a change to every matching stream: at once, or with causal ordering when its batch is complete."""
        change = DecodedChange(matched.change)
        for reason, numbers in zip(_MATCH_KINDS, matched[1:], strict=True):
            for number in numbers:
                stream = self.streams_by_subscription_id.get(number)
                if stream is None:
                    if self._pending_registrations:
                        self._early_changes.setdefault(number, []).append(
                            _single_match(matched.change, number, reason)
                        )
                elif not stream.accept(matched.change):
                    continue
                elif stream.causal_buffer is None:
                    self._publish(stream, change, reason)
                elif stream.causal_buffer.add(matched.change.offset, (change, reason)):
                    self._causal_pending.add(stream)
                else:
                    self._resync([stream], "overflow")

    def _publish(self, stream: CollectionStream, change: DecodedChange, reason: MatchKind) -> None:
        if stream.state is StreamState.CLOSED:
            return
        try:
            seq, suffix = stream.append_change(change, reason)
        except Exception:
            self._publish_failed(stream)
            return
        self.publish(stream, seq, suffix)

    def _publish_window(self, result: WindowResult) -> None:
        stream = self.streams_by_subscription_id.get(result.subscription)
        if stream is None:
            if self._pending_registrations:
                self._early_changes.setdefault(result.subscription, []).append(result)
            return
        try:
            seq, suffix = stream.append_window(result, self.completed_offset)
        except Exception:
            self._publish_failed(stream)
            return
        self.publish(stream, seq, suffix)

    def publish(self, stream: CollectionStream, seq: int, suffix: bytes) -> None:
        """Queue a numbered and encoded event of a stream."""
        self.events += 1
        self._broker.publish(stream, seq, suffix)

    def _publish_failed(self, stream: CollectionStream) -> None:
        """Resync a stream after a change could not be encoded or evaluated. It must not be lost silently."""
        extra = {"action": "collection.untold", "tenant": stream.tenant.name, "stream": stream.stream_id}
        log.exception("A change could not be delivered; the stream must resync", extra=extra)
        self._resync([stream], "gap")

    def _publish_unfiltered(self, record: DeliveredChange) -> None:
        """Evaluate an unfiltered change against all local streams of its collection. The pipeline sends changes
        unfiltered while its index is not reliable.
        """
        change = DecodedChange(record)
        for number, stream in list(self.streams_by_subscription_id.items()):
            if stream.state is not StreamState.LIVE or record.offset <= stream.start_offset:
                continue  # the batch that includes the stream delivers the change
            if stream.tenant.name == record.tenant and record.collection in stream.collections:
                self._classify_and_publish(stream, number, change)

    def _classify_and_publish(self, stream: CollectionStream, number: int, change: DecodedChange) -> None:
        try:
            reason = stream.classify(change) if not stream.request.windowed else None
        except Exception:
            self._publish_failed(stream)
            return
        if reason is not None:
            self._publish_change(_single_match(change.record, number, reason))

    def _complete(self, offset: int, version: int) -> None:
        """Handle the end of a batch: streams that were part of it have no unpublished changes up to its offset."""
        self.completed_offset, self._completed_version = offset, version
        for stream in [stream for stream in self._registered if stream.version <= version]:
            self._mark_live(stream)
        for stream in [stream for stream in self._causal_pending if stream.state is StreamState.LIVE]:
            self._release(stream)

    def _mark_live(self, stream: CollectionStream) -> None:
        """Mark a stream as live: a batch that included it is complete."""
        if stream.state is StreamState.REGISTERED:
            stream.state = StreamState.LIVE
            self._registered.discard(stream)
            self._release(stream)

    def _release(self, stream: CollectionStream) -> None:
        """Publish buffered changes up to the completed offset, in causal order."""
        for change, reason in (
            stream.causal_buffer.release_up_to(self.completed_offset) if stream.causal_buffer else ()
        ):
            self._publish(stream, change, reason)
        if not stream.causal_buffer:
            self._causal_pending.discard(stream)

    def _status(self, status: PartitionStatus) -> None:
        before = self._states.get(status.partition)
        self._states[status.partition] = status.state
        if status.state == "stale" and before not in (None, "stale"):
            self._resync(self._streams_of_partition(status.partition), "gap")
        if before == "shedding" and status.state != "shedding":
            # Shedding has ended. Low-priority streams missed changes and must resync.
            low = [
                stream
                for stream in self._streams_of_partition(status.partition)
                if stream.request.low_priority
            ]
            self._resync(low, "overflow")

    def _streams_of_partition(self, partition: int) -> list[CollectionStream]:
        return [
            stream
            for stream in self.streams_by_subscription_id.values()
            if partition in stream.partition_epochs
        ]


_MATCH_KINDS = tuple(MatchKind)


def _single_match(record: DeliveredChange, number: int, reason: MatchKind) -> MatchedChange:
    """Return the change addressed to a single subscription."""
    return MatchedChange(record, *((number,) if reason is each else () for each in MatchKind))
