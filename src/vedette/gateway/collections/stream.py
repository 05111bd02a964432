"""Streams over external collections: numbers and encodes the changes that the pipeline matched.

    OPENING ── registered ──▶ REGISTERED ── first batch that includes it completes ──▶ LIVE
    any state ── resync, or no subscribers left ──▶ CLOSED

In state OPENING its subscribers wait. A REGISTERED stream may still lack changes after its start offset. A LIVE stream
has published everything up to the end of the last completed batch. `published` holds the exact position per partition:
every matching change up to that position was published, and none after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from vedette.change import Event
from vedette.filters.collection_query import CollectionQuery
from vedette.filters.document_filter import DocumentFilter
from vedette.filters.inputs import FilterInput
from vedette.gateway.collections.snapshot import PartitionPosition
from vedette.gateway.streams.stream import Stream
from vedette.gateway.wire.messages import to_wire
from vedette.policy.collection_policies import ViewRule
from vedette.sources.images import decode_image
from vedette.subscriptions.collection_watch import CollectionWatch
from vedette.subscriptions.policy_view import DocumentView
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.transport.causal_order import CausalBuffer
from vedette.transport.ingest_messages import DeliveredChange, WindowResult
from vedette.values import timestamp_to_ms
from vedette.watch.delta import values_equal

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.gateway.broker.broker import Client
    from vedette.gateway.streams.tenant import Tenant

__all__ = [
    "CollectionRequest",
    "CollectionStream",
    "CollectionView",
    "DecodedChange",
    "MatchKind",
    "PendingSubscriber",
    "PublishedRows",
    "SavedCollectionStream",
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


class CollectionView(NamedTuple):
    """The part of a collection that policies show to an actor."""

    form: SubscriptionSpec
    """The subscription combined with the policies; the pipeline evaluates it."""
    condition: DocumentFilter
    view: DocumentView


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRequest:
    """What a subscription over external collections asks for. Subscriptions with equal keys share a stream."""

    key: bytes
    collections: tuple[str, ...]
    """Names as the client writes them, such as `shop::orders`; several form a union."""
    form: SubscriptionSpec
    condition: DocumentFilter
    watch: CollectionWatch | None = None
    """The WATCH statement; None for a filter, whose events are document deltas."""
    include_data: bool = False
    low_priority: bool = False
    snapshot: bool = False
    """True if this subscriber gets a snapshot first."""
    query: CollectionQuery | None = field(default=None, compare=False)
    """For a filter: order and paging of its snapshot."""
    views: Mapping[str, CollectionView] | None = None
    """Policy views by collection; None if everything is visible."""

    @property
    def windowed(self) -> bool:
        """True if the watch publishes only at the end of windows."""
        return self.watch is not None and self.watch.windowed

    @property
    def causal(self) -> bool:
        """True if events are ordered across all partitions. They are held until every partition has passed their
        offset.
        """
        return self.watch is not None and self.watch.options.ordering.kind == "causal"

    @property
    def view_rules(self) -> dict[str, tuple[ViewRule, ...] | None] | None:
        """The policy rules behind `views`."""
        return None if self.views is None else {name: view.form.sight for name, view in self.views.items()}

    def form_of(self, collection: str) -> SubscriptionSpec:
        return self.form if self.views is None else self.views[collection].form

    def matches(self, collection: str, environment: FilterInput) -> bool:
        """Return True if the document matches and policies show it."""
        condition = self.condition if self.views is None else self.views[collection].condition
        return condition.matches(environment)

    def row(self, collection: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return what subscribers see of a matching document: the row of a WATCH, or the document itself."""
        if self.views is not None:
            document = self.views[collection].view.redact(collection, key, document)
        if self.watch is not None:
            return self.watch.row(key, document, collection)
        return {"id": key, "_type": collection, **document}


class SavedCollectionStream(msgspec.Struct, frozen=True, kw_only=True):
    """State of a stream that the next server needs to continue it (`window_file.py`)."""

    form: SubscriptionSpec
    collections: tuple[str, ...]
    sights: dict[str, tuple[ViewRule, ...] | None] | None
    include_data: bool
    low_priority: bool
    after: int
    """Everything up to this journal offset is published."""
    places: dict[int, PartitionPosition]
    """Position up to which each of these partitions is published, beyond `after`."""
    epochs: dict[int, int]
    """Epoch of every partition; a changed epoch means that the partition lost its history."""


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
        super().__init__(tenant, stream_id, request.key, actor)
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
        self._on_closed = on_closed

    def accept(self, record: DeliveredChange) -> bool:
        """Return True if the change is new. A partition's changes arrive in order; a lower position is a duplicate."""
        position = (record.epoch, record.seq)
        if position <= self.received.get(record.partition, (0, 0)):
            return False
        self.received[record.partition] = position
        return True

    def append_change(self, change: DecodedChange, kind: MatchKind) -> tuple[int, bytes]:
        """Number and encode a change that the pipeline matched."""
        record = change.record
        self.published[record.partition] = (record.epoch, record.seq)
        self.position += 1
        offset = record.offset
        if self.request.watch is not None:
            return self.append(b'"payload"', to_wire(self._payload(change, kind)), offset)
        return self.append(b'"delta"', self._delta(change, kind), offset)

    def append_window(self, result: WindowResult, offset: int) -> tuple[int, bytes]:
        """Number and encode the result of a window, as computed by the pipeline."""
        payload = decode_image(result.payload)
        kind = payload.pop("type")
        body = {"type": kind, "tick": offset, "position": result.position, **payload}
        return self.append(b'"payload"', to_wire(body), offset)

    def _payload(self, change: DecodedChange, kind: MatchKind) -> dict[str, Any]:
        """Return what `Event.to_dict` would, without creating an event: this runs for each change and stream."""
        document = change.before if kind is MatchKind.LEAVE else change.after
        payload = {
            "type": ("added", "changed", "removed")[kind],
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
        delta: dict[str, Any] = {
            "type": ("create", "update", "delete")[kind],
            "reason": "delete" if is_deleted else ("enter", "update", "leave")[kind],
            "id": f"{self.collections[record.collection]}/{record.key}",
            "timestamp": record.time_ms,
        }
        if self.request.include_data and kind is not MatchKind.LEAVE and change.after is not None:
            delta["document"] = to_wire(self._row(change, change.after))
        return delta

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
    ) -> Iterator[tuple[int, bytes]]:
        """Append an event for each row, by (collection, key), that a policy change shows, hides or alters."""
        for name in sorted(before.keys() | after.keys()):
            one, other = before.get(name), after.get(name)
            if one is None or other is None:
                reason = MatchKind.LEAVE if other is None else MatchKind.ENTER
            elif values_equal(one, other):
                continue
            else:
                reason = MatchKind.UPDATE
            self.position += 1
            row = other if other is not None else one
            if self.request.watch is not None:
                kind = ("added", "changed", "removed")[reason]
                prev = one if reason is MatchKind.UPDATE else None
                event = Event(type=kind, tick=offset, position=self.position, match=row, prev=prev)
                yield self.append(b'"payload"', to_wire(event.to_dict()), offset)
            else:
                yield self.append(b'"delta"', self._view_delta(name, reason, row), offset)

    def _view_delta(
        self, name: tuple[str, str], reason: MatchKind, row: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        delta: dict[str, Any] = {
            "type": ("create", "update", "delete")[reason],
            "reason": ("enter", "update", "leave")[reason],
            "id": f"{self.collections[name[0]]}/{name[1]}",
            "timestamp": timestamp_to_ms(self.tenant.clock.now()),
        }
        if self.request.include_data and reason is not MatchKind.LEAVE:
            delta["document"] = to_wire(row)
        return delta

    def save(self, after: int) -> None:
        """Store the state that the next server needs to continue at `after`. Windowed streams cannot continue, because
        the gateway does not hold their counts.
        """
        if self.state is StreamState.OPENING or self.request.windowed:
            return
        request = self.request
        saved = SavedCollectionStream(
            form=request.form,
            collections=request.collections,
            sights=request.view_rules,
            include_data=request.include_data,
            low_priority=request.low_priority,
            after=after,
            places=self.published,
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
        self.tenant.window.remove(self.history)

    def initial(self, rows: list[dict[str, Any]], seq: int, offset: int, position: int) -> bytes:
        """Encode a snapshot for one subscriber as of `seq`. It is the first event of the subscriber's chain."""
        event = Event(type="initial", tick=offset, position=position, matches=tuple(rows))
        return self.encode_event(seq, None, offset, b'"payload"', to_wire(event.to_dict()))

    def close(self) -> None:
        super().close()
        if self.state is not StreamState.CLOSED:
            self.state = StreamState.CLOSED
            self._on_closed(self)
