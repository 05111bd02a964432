"""Turns the changes that the pipeline delivers into events of streams.

Theory of operation. `CollectionBroker` adds and removes streams and passes in the frames of ingest links. A change
becomes an event of every stream that it matches: at once, or in causal order at the end of its batch. The publisher
returns what the broker must do: `Published` events to queue, and `ResyncStreams` for streams whose chain broke. Such a
stream is removed here at once, so that it gets no event after the gap. Engine thread only. No I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from vedette.gateway.collections.stream import (
    CollectionStream,
    DecodedChange,
    MatchKind,
    PublishedRows,
    StreamState,
)
from vedette.gateway.streams.stream import EncodedEvent
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

__all__ = ["CollectionPublisher", "Outcome", "Published", "ResyncStreams"]

log = logging.getLogger(__name__)


class Published(NamedTuple):
    """A numbered and encoded event, to be queued for the stream's subscribers."""

    stream: CollectionStream
    event: EncodedEvent


class ResyncStreams(NamedTuple):
    """Streams that lost continuity. Their subscribers must resync."""

    streams: tuple[CollectionStream, ...]
    reason: str


Outcome: TypeAlias = Published | ResyncStreams


class CollectionPublisher:
    """Publishes delivered changes to the streams of external collections."""

    def __init__(self) -> None:
        self._outcomes: list[Outcome] = []
        """Outcomes of the current call."""
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

    def publish_early(self, stream: CollectionStream) -> list[Outcome]:
        """Publish the changes that arrived for a stream before its ids were known."""
        for subscription_id in stream.subscription_ids:
            for change in self._early_changes.pop(subscription_id, ()):
                if isinstance(change, WindowResult):
                    self._publish_window(change)
                else:
                    self._publish_change(change)
        if stream.version <= self._completed_version:  # the end of the batch arrived early, too
            self._mark_live(stream)
        return self._take_outcomes()

    def discard_early(self) -> None:
        self._early_changes.clear()

    def remove(self, stream: CollectionStream) -> None:
        self._registered.discard(stream)
        self._causal_pending.discard(stream)
        for subscription_id in stream.subscription_ids:
            self.streams_by_subscription_id.pop(subscription_id, None)
            self._receiver.remove_subscription(subscription_id)

    def published_offset(self, stream: CollectionStream) -> int:
        return self.completed_offset if stream.state is StreamState.LIVE else stream.start_offset

    # --- deliveries ---------------------------------------------------------------------------------------------

    def receive(self, frame: Deliver | Complete | Status) -> list[Outcome]:
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
                    self._complete(output.offset, frame.index_version)
                case PartitionStatus():
                    self._status(output)
        return self._take_outcomes()

    def _take_outcomes(self) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _resync(self, streams: Iterable[CollectionStream], reason: str) -> None:
        """Close streams and report them. They get no further events."""
        lost = tuple(dict.fromkeys(streams))
        for stream in lost:
            stream.state = StreamState.CLOSED
            self.remove(stream)
        if lost:
            self._outcomes.append(ResyncStreams(lost, reason))

    def _publish_change(self, matched: MatchedChange) -> None:
        """Publish a change to every matching stream: at once, or with causal ordering when its batch is complete."""
        change = DecodedChange(matched.change)
        for kind, ids in zip(_MATCH_KINDS, matched[1:], strict=True):
            for subscription_id in ids:
                stream = self.streams_by_subscription_id.get(subscription_id)
                if stream is None:
                    if self._pending_registrations:
                        early = self._early_changes.setdefault(subscription_id, [])
                        early.append(_single_match(matched.change, subscription_id, kind))
                elif not stream.accept(matched.change):
                    continue
                elif stream.causal_buffer is None:
                    self._publish(stream, change, kind)
                elif stream.causal_buffer.add(matched.change.offset, (change, kind)):
                    self._causal_pending.add(stream)
                else:
                    self._resync([stream], "overflow")

    def _publish(self, stream: CollectionStream, change: DecodedChange, kind: MatchKind) -> None:
        if stream.state is StreamState.CLOSED:
            return
        try:
            event = stream.append_change(change, kind)
        except Exception:
            self._publish_failed(stream)
            return
        self._publish_event(stream, event)

    def _publish_window(self, result: WindowResult) -> None:
        stream = self.streams_by_subscription_id.get(result.subscription)
        if stream is None:
            if self._pending_registrations:
                self._early_changes.setdefault(result.subscription, []).append(result)
            return
        try:
            event = stream.append_window(result, self.completed_offset)
        except Exception:
            self._publish_failed(stream)
            return
        self._publish_event(stream, event)

    def _publish_event(self, stream: CollectionStream, event: EncodedEvent) -> None:
        self.events += 1
        self._outcomes.append(Published(stream, event))

    def publish_view_diff(
        self, stream: CollectionStream, before: PublishedRows, after: PublishedRows
    ) -> list[Outcome]:
        """Publish the difference between the rows visible before and after a policy change."""
        for event in stream.append_view_diff(before, after, stream.start_offset):
            self._publish_event(stream, event)
        return self._take_outcomes()

    def _publish_failed(self, stream: CollectionStream) -> None:
        """Resync a stream after a change could not be encoded or evaluated. It must not be lost silently."""
        extra = {
            "action": "collection.publish_failed",
            "tenant": stream.tenant.name,
            "stream": stream.stream_id,
        }
        log.exception("A change could not be delivered; the stream must resync", extra=extra)
        self._resync([stream], "gap")

    def _publish_unfiltered(self, record: DeliveredChange) -> None:
        """Evaluate an unfiltered change against all local streams of its collection. The pipeline sends changes
        unfiltered while its index is not reliable.
        """
        change = DecodedChange(record)
        for subscription_id, stream in list(self.streams_by_subscription_id.items()):
            if stream.state is not StreamState.LIVE or record.offset <= stream.start_offset:
                continue  # the batch that includes the stream delivers the change
            if stream.tenant.name == record.tenant and record.collection in stream.collections:
                self._classify_and_publish(stream, subscription_id, change)

    def _classify_and_publish(
        self, stream: CollectionStream, subscription_id: int, change: DecodedChange
    ) -> None:
        try:
            kind = stream.classify(change) if not stream.request.windowed else None
        except Exception:
            self._publish_failed(stream)
            return
        if kind is not None:
            self._publish_change(_single_match(change.record, subscription_id, kind))

    def _complete(self, offset: int, version: int) -> None:
        """Handle the end of a batch: streams that were part of it have no unpublished changes up to its offset."""
        self.completed_offset, self._completed_version = offset, version
        for stream in [stream for stream in self._registered if stream.version <= version]:
            self._mark_live(stream)
        for stream in [stream for stream in self._causal_pending if stream.state is StreamState.LIVE]:
            self._release(stream)

    def _mark_live(self, stream: CollectionStream) -> None:
        """Mark a stream as live, after the first complete batch that included it."""
        if stream.state is StreamState.REGISTERED:
            stream.state = StreamState.LIVE
            self._registered.discard(stream)
            self._release(stream)

    def _release(self, stream: CollectionStream) -> None:
        """Publish buffered changes up to the completed offset, in causal order."""
        if stream.causal_buffer is not None:
            for change, kind in stream.causal_buffer.release_up_to(self.completed_offset):
                self._publish(stream, change, kind)
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


def _single_match(record: DeliveredChange, subscription_id: int, kind: MatchKind) -> MatchedChange:
    """Return the change addressed to a single subscription."""
    return MatchedChange(record, *((subscription_id,) if kind is each else () for each in MatchKind))
