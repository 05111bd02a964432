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
from vedette.filters.collection_query import Query
from vedette.filters.document_filter import DocumentFilter, Environment
from vedette.gateway.collections.snapshot import Place
from vedette.gateway.streams.stream import Stream
from vedette.gateway.wire.messages import wire_value
from vedette.policy.collection_policies import SightRule
from vedette.sources.images import decode_image
from vedette.subscriptions.collection_watch import WatchForm
from vedette.subscriptions.policy_view import DocumentSight
from vedette.subscriptions.spec import Form
from vedette.transport.causal_order import CausalHold
from vedette.transport.ingest_messages import DeliveredChange, WindowTold
from vedette.values import timestamp_to_ms
from vedette.watch.delta import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.gateway.broker.broker import Client
    from vedette.gateway.streams.tenant import Desk

__all__ = [
    "CollectionStream",
    "Eyes",
    "Joining",
    "LeftStream",
    "Reason",
    "StreamState",
    "ToldChange",
    "ToldRows",
    "Wanted",
]

ToldRows: TypeAlias = dict[tuple[str, str], dict[str, Any]]
"""What is told of documents, by collection, as the journal calls it, and key."""


class StreamState(IntEnum):
    OPENING = 0
    STANDING = 1
    LIVE = 2
    CLOSED = 3


class Reason(IntEnum):
    """What a change is to a subscription."""

    ENTER = 0
    UPDATE = 1
    LEAVE = 2


class Eyes(NamedTuple):
    """A collection as policies show it to an actor."""

    form: Form
    """What is wanted, through them: this is what the pipeline evaluates."""
    condition: DocumentFilter
    sight: DocumentSight


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a subscription over an external collection asks for; equal ones share a stream."""

    key: bytes
    collections: tuple[str, ...]
    """As the client names them: `shop::orders`; several are a union."""
    form: Form
    condition: DocumentFilter
    watch: WatchForm | None = None
    """None: a filter, whose events are deltas of documents."""
    include_data: bool = False
    low_priority: bool = False
    snapshot: bool = False
    """Whether this subscriber begins with what there is."""
    query: Query | None = field(default=None, compare=False)
    """Of a filter: how its snapshot is ordered and cut."""
    eyes: Mapping[str, Eyes] | None = None
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
    def sights(self) -> dict[str, tuple[SightRule, ...] | None] | None:
        """What its eyes were made of."""
        return None if self.eyes is None else {name: eyes.form.sight for name, eyes in self.eyes.items()}

    def form_of(self, collection: str) -> Form:
        return self.form if self.eyes is None else self.eyes[collection].form

    def holds(self, collection: str, environment: Environment) -> bool:
        """Whether a document of a collection is wanted, and seen."""
        condition = self.condition if self.eyes is None else self.eyes[collection].condition
        return condition.matches(environment)

    def row(self, collection: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """A document that holds as it is told: the row of a WATCH, or the document itself."""
        if self.eyes is not None:
            document = self.eyes[collection].sight.shown(collection, key, document)
        if self.watch is not None:
            return self.watch.row(key, document, collection)
        return {"id": key, "_type": collection, **document}


class LeftStream(msgspec.Struct, frozen=True, kw_only=True):
    """What the next server needs to know to go on with a stream (`window_file.py`)."""

    form: Form
    collections: tuple[str, ...]
    sights: dict[str, tuple[SightRule, ...] | None] | None
    include_data: bool
    low_priority: bool
    after: int
    """Everything up to this offset is told."""
    places: dict[int, Place]
    """And of these partitions everything up to there."""
    epochs: dict[int, int]
    """Of all partitions: one that has another has lost its past."""


class Joining(NamedTuple):
    """A subscriber who was asked to wait."""

    client: Client
    sub: str
    wanted: Wanted

    def through(self, stream: CollectionStream) -> Joining:
        """With the eyes that the stream has now."""
        return self._replace(wanted=replace(self.wanted, eyes=stream.wanted.eyes))


class ToldChange:
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
        "boundary",
        "collections",
        "heard",
        "hold",
        "ids",
        "looking",
        "partitions",
        "places",
        "position",
        "registered",
        "state",
        "version",
        "waiting",
        "wanted",
    )

    def __init__(
        self,
        desk: Desk,
        number: int,
        actor: str | None,
        wanted: Wanted,
        ended: Callable[[CollectionStream], None],
    ) -> None:
        super().__init__(desk, number, wanted.key, actor)
        self.wanted = wanted
        self.state = StreamState.OPENING
        self.collections: dict[str, str] = {}
        """As the journal calls them ▸ as the client does."""
        self.ids: tuple[str, ...] = ()
        """What this gateway calls it at the registry, once for each collection."""
        self.registered: tuple[int, ...] = ()
        """Its numbers at the registry, one for each collection."""
        self.boundary = 0
        """The journal's offset at which it began."""
        self.version = 0
        """Of the registry: batches of this version and later know it."""
        self.partitions: dict[int, int] = {}
        """Where its changes come from, and the epochs."""
        self.position = int(wanted.snapshot)
        """Of its last event; what it began with is the first."""
        self.places: dict[int, Place] = {}
        """Partition ▸ the last change that it was told."""
        self.heard: dict[int, Place] = {} if wanted.causal else self.places
        """Partition ▸ the last change that came for it; in causal order it is told later."""
        self.hold: CausalHold[tuple[ToldChange, Reason]] | None = CausalHold() if wanted.causal else None
        """What came and is told when its batch is complete."""
        self.waiting: list[Joining] = []
        """Who waits for it to be opened."""
        self.looking: list[Joining] = []
        """Who waits for what it was told before."""
        self._ended = ended

    def hears(self, record: DeliveredChange) -> bool:
        """Whether the change is news to it: of each partition changes come in order, and only repeats go back."""
        place = (record.epoch, record.seq)
        if place <= self.heard.get(record.partition, (0, 0)):
            return False
        self.heard[record.partition] = place
        return True

    def tell_change(self, change: ToldChange, reason: Reason) -> tuple[int, bytes]:
        """Number a change that the pipeline found to concern it."""
        record = change.record
        self.places[record.partition] = (record.epoch, record.seq)
        self.position += 1
        offset = record.offset
        if self.wanted.watch is not None:
            return self.tell(b'"payload"', wire_value(self._payload(change, reason)), offset)
        return self.tell(b'"delta"', self._delta(change, reason), offset)

    def tell_window(self, told: WindowTold, offset: int) -> tuple[int, bytes]:
        """What the end of a window says, as the pipeline has put it together."""
        payload = decode_image(told.payload)
        kind = payload.pop("type")
        body = {"type": kind, "tick": offset, "position": told.position, **payload}
        return self.tell(b'"payload"', wire_value(body), offset)

    def _payload(self, change: ToldChange, reason: Reason) -> dict[str, Any]:
        """As `Event.to_dict` has it, without the event: this is done for every change and every stream."""
        document = change.before if reason is Reason.LEAVE else change.after
        payload = {
            "type": ("added", "changed", "removed")[reason],
            "tick": change.record.offset,
            "position": self.position,
            "match": self._row(change, document or {}),
        }
        if reason is Reason.UPDATE and change.before is not None:
            payload["prev"] = self._row(change, change.before)
        return payload

    def _row(self, change: ToldChange, document: Mapping[str, Any]) -> dict[str, Any]:
        return self.wanted.row(self.collections[change.record.collection], change.record.key, document)

    def _delta(self, change: ToldChange, reason: Reason) -> dict[str, Any]:
        record = change.record
        gone = reason is Reason.LEAVE and record.op == "delete"
        delta: dict[str, Any] = {
            "type": ("create", "update", "delete")[reason],
            "reason": "delete" if gone else ("enter", "update", "leave")[reason],
            "id": f"{self.collections[record.collection]}/{record.key}",
            "timestamp": record.time_ms,
        }
        if self.wanted.include_data and reason is not Reason.LEAVE and change.after is not None:
            delta["document"] = wire_value(self._row(change, change.after))
        return delta

    def judge(self, change: ToldChange) -> Reason | None:
        """What a change that came unfiltered is to it; None when nothing."""
        was, is_now = self._holds(change, change.before), self._holds(change, change.after)
        if was and is_now:
            judged = self.wanted.watch is not None or self.wanted.eyes is not None
            unseen = judged and same(
                self._row(change, change.before or {}), self._row(change, change.after or {})
            )
            return None if unseen else Reason.UPDATE
        return Reason.ENTER if is_now else Reason.LEAVE if was else None

    def _holds(self, change: ToldChange, document: Mapping[str, Any] | None) -> bool:
        record = change.record
        if document is None:
            return False
        environment = Environment(
            doc=document, id=record.key, collection=record.collection, op=record.op, before=change.before
        )
        return self.wanted.holds(self.collections[record.collection], environment)

    def tell_difference(self, before: ToldRows, after: ToldRows, offset: int) -> Iterator[tuple[int, bytes]]:
        """Rows that are seen otherwise than before, by (collection, key), though nothing happened to the documents."""
        for name in sorted(before.keys() | after.keys()):
            one, other = before.get(name), after.get(name)
            if one is None or other is None:
                reason = Reason.LEAVE if other is None else Reason.ENTER
            elif same(one, other):
                continue
            else:
                reason = Reason.UPDATE
            self.position += 1
            row = other if other is not None else one
            if self.wanted.watch is not None:
                kind = ("added", "changed", "removed")[reason]
                prev = one if reason is Reason.UPDATE else None
                event = Event(type=kind, tick=offset, position=self.position, match=row, prev=prev)
                yield self.tell(b'"payload"', wire_value(event.to_dict()), offset)
            else:
                yield self.tell(b'"delta"', self._seen_delta(name, reason, row), offset)

    def _seen_delta(
        self, name: tuple[str, str], reason: Reason, row: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        delta: dict[str, Any] = {
            "type": ("create", "update", "delete")[reason],
            "reason": ("enter", "update", "leave")[reason],
            "id": f"{self.collections[name[0]]}/{name[1]}",
            "timestamp": timestamp_to_ms(self.desk.clock.now()),
        }
        if self.wanted.include_data and reason is not Reason.LEAVE:
            delta["document"] = wire_value(row)
        return delta

    def leave_behind(self, after: int) -> None:
        """It may go on with another server, from where it stands; windows may not, they are not counted here."""
        if self.state is StreamState.OPENING or self.wanted.windowed:
            return
        wanted = self.wanted
        left = LeftStream(
            form=wanted.form,
            collections=wanted.collections,
            sights=wanted.sights,
            include_data=wanted.include_data,
            low_priority=wanted.low_priority,
            after=after,
            places=self.places,
            epochs=self.partitions,
        )
        self.recipe = msgspec.json.encode({"collection": left})

    def begin_anew(self, wanted: Wanted) -> None:
        """It is seen through other eyes from here on: what it was told before is not for those who come back."""
        self.wanted = wanted
        self.state = StreamState.OPENING
        self.registered, self.places = (), {}
        self.heard = {} if wanted.causal else self.places
        self.hold = CausalHold() if wanted.causal else None
        self.desk.window.forget(self.history)

    def initial(self, rows: list[dict[str, Any]], seq: int, offset: int, position: int) -> bytes:
        """A snapshot for one subscriber: the stream stood at `seq` then. It begins the chain."""
        event = Event(type="initial", tick=offset, position=position, matches=tuple(rows))
        return self.tail(seq, None, offset, b'"payload"', wire_value(event.to_dict()))

    def close(self) -> None:
        super().close()
        if self.state is not StreamState.CLOSED:
            self.state = StreamState.CLOSED
            self._ended(self)
