"""Streams over external collections: numbers and encodes the changes that the pipeline matched.

    OPENING ── registered ──▶ REGISTERED ── first batch that includes it completes ──▶ LIVE
    any state ── resync, or no subscribers left ──▶ CLOSED

In state OPENING its subscribers wait. A REGISTERED stream may still lack changes after its start offset. A LIVE stream
has published everything up to the end of the last completed batch. `published` holds the exact position per partition:
every matching change up to that position was published, and none after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import msgspec

from vedette.change import Event
from vedette.filters.inputs import FilterInput
from vedette.gateway.collections.queries import CollectionRequest, SavedCollectionStream
from vedette.gateway.collections.snapshot import PartitionPosition
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.stream import EncodedEvent, Stream
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire.messages import to_wire
from vedette.gateway.wire.replies import delta_payload
from vedette.sources.images import decode_image
from vedette.transport.causal_order import CausalBuffer
from vedette.transport.ingest_messages import DeliveredChange, WindowResult
from vedette.values import timestamp_to_ms
from vedette.watch.delta import values_equal

__all__ = [
    "CollectionStream",
    "DecodedChange",
    "MatchKind",
    "PendingSubscriber",
    "PublishedRows",
    "StreamState",
]

PublishedRows: TypeAlias = dict[tuple[str, str], dict[str, Any]]
"""Rows that subscribers see, by (collection name in the journal, key)."""


class StreamState(IntEnum):
    OPENING = 0
    REGISTERED = 1
    LIVE = 2
    CLOSED = 3


class MatchKind(IntEnum):
    """How a change affects the result of a subscription."""

    ENTER = 0
    UPDATE = 1
    LEAVE = 2


_EVENT_TYPES = ("added", "changed", "removed")
_DELTA_TYPES = ("create", "update", "delete")
_DELTA_REASONS = ("enter", "update", "leave")
"""Values of the protocol, by `MatchKind`."""


class PendingSubscriber(NamedTuple):
    """A subscriber that waits for a registration or a snapshot."""

    client: Client
    sub_id: str
    request: CollectionRequest

    def with_views_of(self, stream: CollectionStream) -> PendingSubscriber:
        """Return a copy with the stream's current views."""
        return self._replace(request=replace(self.request, views=stream.request.views))


class DecodedChange:
    """A delivered change. Its images are decoded on first use and shared by all streams."""

    __slots__ = ("_after", "_before", "record")

    def __init__(self, record: DeliveredChange) -> None:
        self.record = record
        self._before: dict[str, Any] | None = None
        self._after: dict[str, Any] | None = None

    @property
    def before(self) -> dict[str, Any] | None:
        if self._before is None and self.record.before is not None:
            self._before = decode_image(self.record.before)
        return self._before

    @property
    def after(self) -> dict[str, Any] | None:
        if self._after is None and self.record.after is not None:
            self._after = decode_image(self.record.after)
        return self._after


class CollectionStream(Stream):
    """The events of one registered subscription, shared by all subscribers with equal request and rights."""

    __slots__ = (
        "_on_closed",
        "awaiting_registration",
        "awaiting_snapshot",
        "causal_buffer",
        "collections",
        "partition_epochs",
        "position",
        "published",
        "received",
        "registration_ids",
        "request",
        "start_offset",
        "state",
        "subscription_ids",
        "tenant",
        "version",
    )

    def __init__(
        self,
        tenant: Tenant,
        stream_id: int,
        actor: str | None,
        request: CollectionRequest,
        on_closed: Callable[[CollectionStream], None],
    ) -> None:
        """`on_closed` is called once, when the stream is closed."""
        super().__init__(tenant.event_log, stream_id, request.key, actor)
        self.tenant = tenant
        self.request = request
        self.state = StreamState.OPENING
        self.collections: dict[str, str] = {}
        """Collection name in the journal ▸ name used by the client."""
        self.registration_ids: tuple[str, ...] = ()
        """This gateway's ids at the registry, one per collection."""
        self.subscription_ids: tuple[int, ...] = ()
        """Numeric ids assigned by the registry, one per collection."""
        self.start_offset = 0
        """Journal offset of the snapshot; every later change is published."""
        self.version = 0
        """Registry version; batches of this version or later include the stream."""
        self.partition_epochs: dict[int, int] = {}
        """Partitions that feed the stream, with their epochs."""
        self.position = int(request.snapshot)
        """Position of the last event; the snapshot counts as the first."""
        self.published: dict[int, PartitionPosition] = {}
        """Partition ▸ position of the last published change."""
        self.received: dict[int, PartitionPosition] = {} if request.causal else self.published
        """Partition ▸ position of the last received change. With causal ordering, it is published later."""
        self.causal_buffer: CausalBuffer[tuple[DecodedChange, MatchKind]] | None = (
            CausalBuffer() if request.causal else None
        )
        """Received changes that are published when their batch is complete; None without causal ordering."""
        self.awaiting_registration: list[PendingSubscriber] = []
        """Subscribers that wait for the registration."""
        self.awaiting_snapshot: list[PendingSubscriber] = []
        """Subscribers that wait for their snapshot."""
        self._on_closed: Callable[[CollectionStream], None] | None = on_closed

    def accept(self, record: DeliveredChange) -> bool:
        """Return True if the change is new. A partition's changes arrive in order; a lower position is a duplicate."""
        position = (record.epoch, record.seq)
        if position <= self.received.get(record.partition, (0, 0)):
            return False
        self.received[record.partition] = position
        return True

    def append_change(self, change: DecodedChange, kind: MatchKind) -> EncodedEvent:
        """Number and encode a change that the pipeline matched."""
        record = change.record
        self.published[record.partition] = (record.epoch, record.seq)
        self.position += 1
        offset = record.offset
        if self.request.watch is not None:
            return self.append(b'"payload"', to_wire(self._payload(change, kind)), offset)
        return self.append(b'"delta"', self._delta(change, kind), offset)

    def append_window(self, result: WindowResult, offset: int) -> EncodedEvent:
        """Number and encode the result of a window, as computed by the pipeline."""
        payload = decode_image(result.payload)
        kind = payload.pop("type")
        body = {"type": kind, "tick": offset, "position": result.position, **payload}
        return self.append(b'"payload"', to_wire(body), offset)

    def _payload(self, change: DecodedChange, kind: MatchKind) -> dict[str, Any]:
        """Return what `Event.to_dict` would, without creating an event: this runs for each change and stream."""
        document = change.before if kind is MatchKind.LEAVE else change.after
        payload = {
            "type": _EVENT_TYPES[kind],
            "tick": change.record.offset,
            "position": self.position,
            "match": self._row(change, document or {}),
        }
        if kind is MatchKind.UPDATE and change.before is not None:
            payload["prev"] = self._row(change, change.before)
        return payload

    def _row(self, change: DecodedChange, document: Mapping[str, Any]) -> dict[str, Any]:
        return self.request.row(self.collections[change.record.collection], change.record.key, document)

    def _delta(self, change: DecodedChange, kind: MatchKind) -> dict[str, Any]:
        record = change.record
        is_deleted = kind is MatchKind.LEAVE and record.op == "delete"
        document = None
        if self.request.include_data and kind is not MatchKind.LEAVE and change.after is not None:
            document = to_wire(self._row(change, change.after))
        return delta_payload(
            _DELTA_TYPES[kind],
            "delete" if is_deleted else _DELTA_REASONS[kind],
            id=f"{self.collections[record.collection]}/{record.key}",
            timestamp_ms=record.time_ms,
            document=document,
        )

    def classify(self, change: DecodedChange) -> MatchKind | None:
        """Return how an unfiltered change affects the stream; None if it does not."""
        was, is_now = self._matches(change, change.before), self._matches(change, change.after)
        if was and is_now:
            compares_rows = self.request.watch is not None or self.request.views is not None
            unchanged = compares_rows and values_equal(
                self._row(change, change.before or {}), self._row(change, change.after or {})
            )
            return None if unchanged else MatchKind.UPDATE
        return MatchKind.ENTER if is_now else MatchKind.LEAVE if was else None

    def _matches(self, change: DecodedChange, document: Mapping[str, Any] | None) -> bool:
        record = change.record
        if document is None:
            return False
        environment = FilterInput(
            doc=document, id=record.key, collection=record.collection, op=record.op, before=change.before
        )
        return self.request.matches(self.collections[record.collection], environment)

    def append_view_diff(
        self, before: PublishedRows, after: PublishedRows, offset: int
    ) -> Iterator[EncodedEvent]:
        """Append an event for each row, by (collection, key), that a policy change shows, hides or alters."""
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            if old is None or new is None:
                kind = MatchKind.LEAVE if new is None else MatchKind.ENTER
            elif values_equal(old, new):
                continue
            else:
                kind = MatchKind.UPDATE
            self.position += 1
            row = new if new is not None else old
            if self.request.watch is not None:
                prev = old if kind is MatchKind.UPDATE else None
                event = Event(
                    type=_EVENT_TYPES[kind], tick=offset, position=self.position, match=row, prev=prev
                )
                yield self.append(b'"payload"', to_wire(event.to_dict()), offset)
            else:
                yield self.append(b'"delta"', self._view_delta(name, kind, row), offset)

    def _view_delta(
        self, name: tuple[str, str], kind: MatchKind, row: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return delta_payload(
            _DELTA_TYPES[kind],
            _DELTA_REASONS[kind],
            id=f"{self.collections[name[0]]}/{name[1]}",
            timestamp_ms=timestamp_to_ms(self.event_log.clock.now()),
            document=to_wire(row) if self.request.include_data and kind is not MatchKind.LEAVE else None,
        )

    def save(self, after: int) -> None:
        """Store the state that the next server needs to continue at `after`. Windowed streams cannot continue, because
        the gateway does not hold their counts.
        """
        if self.state is StreamState.OPENING or self.request.windowed:
            return
        request = self.request
        saved = SavedCollectionStream(
            spec=request.spec,
            collections=request.collections,
            view_rules=request.view_rules,
            include_data=request.include_data,
            low_priority=request.low_priority,
            after=after,
            positions=self.published,
            epochs=self.partition_epochs,
        )
        self.restore_spec = msgspec.json.encode({"collection": saved})

    def reset(self, request: CollectionRequest) -> None:
        """Return to OPENING with a new request, after a policy change. Earlier events cannot be resumed."""
        self.request = request
        self.state = StreamState.OPENING
        self.subscription_ids, self.published = (), {}
        self.received = {} if request.causal else self.published
        self.causal_buffer = CausalBuffer() if request.causal else None
        self.event_log.window.remove(self.history)

    def encode_initial(self, rows: list[dict[str, Any]], seq: int, offset: int, position: int) -> bytes:
        """Encode a snapshot for one subscriber as of `seq`. It is the first event of the subscriber's chain."""
        event = Event(type="initial", tick=offset, position=position, matches=tuple(rows))
        return self.encode_event(seq, None, offset, b'"payload"', to_wire(event.to_dict()))

    def close(self) -> None:
        super().close()
        self.state = StreamState.CLOSED
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is not None:
            on_closed(self)
