"""What the pipeline delivers, told to the streams that it concerns: at once, or in causal order at the end of a batch.

Which streams there are the desk knows and says (`add`, `remove`). A change that cannot be told ends the stream's chain:
its subscribers are told to begin anew, by the desk's `resync`.
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
    """`resync` closes streams, and tells who followed them why they have to begin anew."""

    def __init__(self, broker: Broker, resync: ResyncStreams) -> None:
        self._broker, self._resync = broker, resync
        self._ingest = ChangeReceiver()
        self.streams_by_subscription_id: dict[int, CollectionStream] = {}
        """Streams by their number at the registry."""
        self._standing: set[CollectionStream] = set()
        self._causal_pending: set[CollectionStream] = set()
        """Streams in causal order for which something has come that they were not told yet."""
        self._expected = 0
        self._early_changes: dict[int, list[MatchedChange | WindowResult]] = {}
        """For numbers that are not known yet, while something is being opened."""
        self._states: dict[int, str] = {}
        """Partitions and what the pipeline last said about them."""
        self.completed_offset = 0
        """All partitions are told up to this offset."""
        self._version = -1
        """Subscriptions up to this version of the registry were: those that the batch knew."""
        self.events = 0
        """What was told to streams here, so far."""

    # --- streams come and go ------------------------------------------------------------------------------------

    def registration_started(self) -> None:
        """A stream is being opened: what comes for a number that nobody has may be its."""
        self._expected += 1

    def registration_finished(self) -> None:
        """That is over, whatever came of it."""
        self._expected -= 1
        if not self._expected:
            self._early_changes.clear()

    def add(self, stream: CollectionStream, states: Mapping[int, str]) -> None:
        """It is registered. `states`: of its partitions, unless the pipeline has said more since."""
        self._ingest.track_epochs(stream.partition_epochs)
        self._states = {**states, **self._states}
        self.streams_by_subscription_id.update(dict.fromkeys(stream.subscription_ids, stream))
        self._standing.add(stream)

    def publish_early(self, stream: CollectionStream) -> None:
        """What came for it before its numbers were known."""
        for number in stream.subscription_ids:
            for told in self._early_changes.pop(number, ()):
                if isinstance(told, WindowResult):
                    self._window(told)
                else:
                    self._publish_change(told)
        if stream.version <= self._version:  # so did the end of the batch, which nobody says again
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

    # --- what the pipeline delivers -----------------------------------------------------------------------------

    def take(self, frame: Deliver | Complete | Status) -> None:
        """One frame of an ingest link, in the order of arrival."""
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
        """To everyone it concerns: at once, or in causal order when its batch is complete."""
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
        """An event of the stream, numbered and encoded."""
        self.events += 1
        self._broker.publish(stream, seq, tail)

    def _publish_failed(self, stream: CollectionStream) -> None:
        """A document that cannot be told, or judged: its subscribers must not miss it in silence."""
        extra = {"action": "collection.untold", "tenant": stream.desk.tenant, "stream": stream.stream_id}
        log.exception("A change could not be delivered; the stream must resync", extra=extra)
        self._resync([stream], "gap")

    def _unfiltered(self, record: DeliveredChange) -> None:
        """The index was unsure (ruling 2): held against everything that follows the collection here."""
        change = DecodedChange(record)
        for number, stream in list(self.streams_by_subscription_id.items()):
            if stream.state is not StreamState.LIVE or record.offset <= stream.start_offset:
                continue  # what it misses now it is told when the batch with it comes
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
        """A batch is told whole: of streams that it knew nothing up to its end is outstanding."""
        self.completed_offset, self._version = offset, version
        for stream in [stream for stream in self._standing if stream.version <= version]:
            self._mark_live(stream)
        for stream in [stream for stream in self._causal_pending if stream.state is StreamState.LIVE]:
            self._release(stream)

    def _mark_live(self, stream: CollectionStream) -> None:
        """A batch that knew it is told whole."""
        if stream.state is StreamState.REGISTERED:
            stream.state = StreamState.LIVE
            self._standing.discard(stream)
            self._release(stream)

    def _release(self, stream: CollectionStream) -> None:
        """Tell it in causal order what is complete."""
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
            # It is over: who was passed over can begin anew.
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
    """A change for one subscription."""
    return MatchedChange(record, *((number,) if reason is each else () for each in MatchKind))
