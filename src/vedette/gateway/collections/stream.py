"""Streams over external collections: the pipeline says which changes concern them, here they become events.

    opening ── registered ──▶ standing ── first batch with it is complete ──▶ live ── resync, nobody left ──▶ closed

While it is opening its subscribers wait. A standing stream may still have to be told what came after its boundary; a
live one has been told everything up to the end of the last batch. Where exactly a stream stands its `places` say: of
each partition it was told every change up to there that concerns it, and none after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from vedette.change import Event
from vedette.filters.collection_query import CollectionQuery
from vedette.filters.document_filter import DocumentFilter, FilterInput
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
"""What is told of documents, by collection, as the journal calls it, and key."""


class StreamState(IntEnum):
    OPENING = 0
    REGISTERED = 1
    LIVE = 2
    CLOSED = 3


class MatchKind(IntEnum):
    """What a change is to a subscription."""

    ENTER = 0
    UPDATE = 1
    LEAVE = 2


class CollectionView(NamedTuple):
    """A collection as policies show it to an actor."""

    form: SubscriptionSpec
    """What is wanted, through them: this is what the pipeline evaluates."""
    condition: DocumentFilter
    sight: DocumentView


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRequest:
    """What a subscription over an external collection asks for; equal ones share a stream."""

    key: bytes
    collections: tuple[str, ...]
    """As the client names them: `shop::orders`; several are a union."""
    form: SubscriptionSpec
    condition: DocumentFilter
    watch: CollectionWatch | None = None
    """None: a filter, whose events are deltas of documents."""
    include_data: bool = False
    low_priority: bool = False
    snapshot: bool = False
    """Whether this subscriber begins with what there is."""
    query: CollectionQuery | None = field(default=None, compare=False)
    """Of a filter: how its snapshot is ordered and cut."""
    views: Mapping[str, CollectionView] | None = None
    """By collection; None: everything is seen."""

    @property
    def windowed(self) -> bool:
        """Whether it is told at the end of windows, and nothing in between."""
        return self.watch is not None and self.watch.windowed

    @property
    def causal(self) -> bool:
        """Whether events come in one order over all partitions, held back until all have passed their place."""
        return self.watch is not None and self.watch.options.ordering.kind == "causal"

    @property
    def view_rules(self) -> dict[str, tuple[ViewRule, ...] | None] | None:
        """What its eyes were made of."""
        return None if self.views is None else {name: eyes.form.sight for name, eyes in self.views.items()}

    def form_of(self, collection: str) -> SubscriptionSpec:
        return self.form if self.views is None else self.views[collection].form

    def holds(self, collection: str, environment: FilterInput) -> bool:
        """Whether a document of a collection is wanted, and seen."""
        condition = self.condition if self.views is None else self.views[collection].condition
        return condition.matches(environment)

    def row(self, collection: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """A document that holds as it is told: the row of a WATCH, or the document itself."""
        if self.views is not None:
            document = self.views[collection].sight.redact(collection, key, document)
        if self.watch is not None:
            return self.watch.row(key, document, collection)
        return {"id": key, "_type": collection, **document}


class SavedCollectionStream(msgspec.Struct, frozen=True, kw_only=True):
    """What the next server needs to know to go on with a stream (`window_file.py`)."""

    form: SubscriptionSpec
    collections: tuple[str, ...]
    sights: dict[str, tuple[ViewRule, ...] | None] | None
    include_data: bool
    low_priority: bool
    after: int
    """Everything up to this offset is told."""
    places: dict[int, PartitionPosition]
    """And of these partitions everything up to there."""
    epochs: dict[int, int]
    """Of all partitions: one that has another has lost its past."""


class PendingSubscriber(NamedTuple):
    """A subscriber who was asked to wait."""

    client: Client
    sub: str
    wanted: CollectionRequest

    def with_views_of(self, stream: CollectionStream) -> PendingSubscriber:
        """With the eyes that the stream has now."""
        return self._replace(wanted=replace(self.wanted, views=stream.wanted.views))


class DecodedChange:
    """A delivered change, its images decoded once for all streams, when one wants to see them."""

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
    """The events of one subscription at the registry, for everyone who asked for the same with the same rights."""

    __slots__ = (
        "_ended",
        "awaiting_registration",
        "awaiting_snapshot",
        "causal_buffer",
        "collections",
        "partition_epochs",
        "position",
        "published",
        "received",
        "registration_ids",
        "start_offset",
        "state",
        "subscription_ids",
        "version",
        "wanted",
    )

    def __init__(
        self,
        desk: Tenant,
        number: int,
        actor: str | None,
        wanted: CollectionRequest,
        ended: Callable[[CollectionStream], None],
    ) -> None:
        super().__init__(desk, number, wanted.key, actor)
        self.wanted = wanted
        self.state = StreamState.OPENING
        self.collections: dict[str, str] = {}
        """As the journal calls them ▸ as the client does."""
        self.registration_ids: tuple[str, ...] = ()
        """What this gateway calls it at the registry, once for each collection."""
        self.subscription_ids: tuple[int, ...] = ()
        """Its numbers at the registry, one for each collection."""
        self.start_offset = 0
        """The journal's offset at which it began."""
        self.version = 0
        """Of the registry: batches of this version and later know it."""
        self.partition_epochs: dict[int, int] = {}
        """Where its changes come from, and the epochs."""
        self.position = int(wanted.snapshot)
        """Of its last event; what it began with is the first."""
        self.published: dict[int, PartitionPosition] = {}
        """Partition ▸ the last change that it was told."""
        self.received: dict[int, PartitionPosition] = {} if wanted.causal else self.published
        """Partition ▸ the last change that came for it; in causal order it is told later."""
        self.causal_buffer: CausalBuffer[tuple[DecodedChange, MatchKind]] | None = (
            CausalBuffer() if wanted.causal else None
        )
        """What came and is told when its batch is complete."""
        self.awaiting_registration: list[PendingSubscriber] = []
        """Who waits for it to be opened."""
        self.awaiting_snapshot: list[PendingSubscriber] = []
        """Who waits for what it was told before."""
        self._ended = ended

    def accept(self, record: DeliveredChange) -> bool:
        """Whether the change is news to it: of each partition changes come in order, and only repeats go back."""
        place = (record.epoch, record.seq)
        if place <= self.received.get(record.partition, (0, 0)):
            return False
        self.received[record.partition] = place
        return True

    def append_change(self, change: DecodedChange, reason: MatchKind) -> tuple[int, bytes]:
        """Number a change that the pipeline found to concern it."""
        record = change.record
        self.published[record.partition] = (record.epoch, record.seq)
        self.position += 1
        offset = record.offset
        if self.wanted.watch is not None:
            return self.append(b'"payload"', to_wire(self._payload(change, reason)), offset)
        return self.append(b'"delta"', self._delta(change, reason), offset)

    def append_window(self, told: WindowResult, offset: int) -> tuple[int, bytes]:
        """What the end of a window says, as the pipeline has put it together."""
        payload = decode_image(told.payload)
        kind = payload.pop("type")
        body = {"type": kind, "tick": offset, "position": told.position, **payload}
        return self.append(b'"payload"', to_wire(body), offset)

    def _payload(self, change: DecodedChange, reason: MatchKind) -> dict[str, Any]:
        """As `Event.to_dict` has it, without the event: this is done for every change and every stream."""
        document = change.before if reason is MatchKind.LEAVE else change.after
        payload = {
            "type": ("added", "changed", "removed")[reason],
            "tick": change.record.offset,
            "position": self.position,
            "match": self._row(change, document or {}),
        }
        if reason is MatchKind.UPDATE and change.before is not None:
            payload["prev"] = self._row(change, change.before)
        return payload

    def _row(self, change: DecodedChange, document: Mapping[str, Any]) -> dict[str, Any]:
        return self.wanted.row(self.collections[change.record.collection], change.record.key, document)

    def _delta(self, change: DecodedChange, reason: MatchKind) -> dict[str, Any]:
        record = change.record
        gone = reason is MatchKind.LEAVE and record.op == "delete"
        delta: dict[str, Any] = {
            "type": ("create", "update", "delete")[reason],
            "reason": "delete" if gone else ("enter", "update", "leave")[reason],
            "id": f"{self.collections[record.collection]}/{record.key}",
            "timestamp": record.time_ms,
        }
        if self.wanted.include_data and reason is not MatchKind.LEAVE and change.after is not None:
            delta["document"] = to_wire(self._row(change, change.after))
        return delta

    def classify(self, change: DecodedChange) -> MatchKind | None:
        """What a change that came unfiltered is to it; None when nothing."""
        was, is_now = self._holds(change, change.before), self._holds(change, change.after)
        if was and is_now:
            judged = self.wanted.watch is not None or self.wanted.views is not None
            unseen = judged and values_equal(
                self._row(change, change.before or {}), self._row(change, change.after or {})
            )
            return None if unseen else MatchKind.UPDATE
        return MatchKind.ENTER if is_now else MatchKind.LEAVE if was else None

    def _holds(self, change: DecodedChange, document: Mapping[str, Any] | None) -> bool:
        record = change.record
        if document is None:
            return False
        environment = FilterInput(
            doc=document, id=record.key, collection=record.collection, op=record.op, before=change.before
        )
        return self.wanted.holds(self.collections[record.collection], environment)

    def append_view_diff(
        self, before: PublishedRows, after: PublishedRows, offset: int
    ) -> Iterator[tuple[int, bytes]]:
        """Rows that are seen otherwise than before, by (collection, key), though nothing happened to the documents."""
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
            if self.wanted.watch is not None:
                kind = ("added", "changed", "removed")[reason]
                prev = one if reason is MatchKind.UPDATE else None
                event = Event(type=kind, tick=offset, position=self.position, match=row, prev=prev)
                yield self.append(b'"payload"', to_wire(event.to_dict()), offset)
            else:
                yield self.append(b'"delta"', self._seen_delta(name, reason, row), offset)

    def _seen_delta(
        self, name: tuple[str, str], reason: MatchKind, row: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        delta: dict[str, Any] = {
            "type": ("create", "update", "delete")[reason],
            "reason": ("enter", "update", "leave")[reason],
            "id": f"{self.collections[name[0]]}/{name[1]}",
            "timestamp": timestamp_to_ms(self.desk.clock.now()),
        }
        if self.wanted.include_data and reason is not MatchKind.LEAVE:
            delta["document"] = to_wire(row)
        return delta

    def save(self, after: int) -> None:
        """It may go on with another server, from where it stands; windows may not, they are not counted here."""
        if self.state is StreamState.OPENING or self.wanted.windowed:
            return
        wanted = self.wanted
        left = SavedCollectionStream(
            form=wanted.form,
            collections=wanted.collections,
            sights=wanted.view_rules,
            include_data=wanted.include_data,
            low_priority=wanted.low_priority,
            after=after,
            places=self.published,
            epochs=self.partition_epochs,
        )
        self.restore_spec = msgspec.json.encode({"collection": left})

    def reset(self, wanted: CollectionRequest) -> None:
        """It is seen through other eyes from here on: what it was told before is not for those who come back."""
        self.wanted = wanted
        self.state = StreamState.OPENING
        self.subscription_ids, self.published = (), {}
        self.received = {} if wanted.causal else self.published
        self.causal_buffer = CausalBuffer() if wanted.causal else None
        self.desk.window.remove(self.history)

    def initial(self, rows: list[dict[str, Any]], seq: int, offset: int, position: int) -> bytes:
        """A snapshot for one subscriber: the stream stood at `seq` then. It begins the chain."""
        event = Event(type="initial", tick=offset, position=position, matches=tuple(rows))
        return self.encode_event(seq, None, offset, b'"payload"', to_wire(event.to_dict()))

    def close(self) -> None:
        super().close()
        if self.state is not StreamState.CLOSED:
            self.state = StreamState.CLOSED
            self._ended(self)
