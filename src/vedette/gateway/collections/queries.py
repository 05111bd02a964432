"""Subscriptions to external collections: recognizes them, parses them, and records what they ask for.

A type or collection with a prefix, such as `shop::orders`, belongs to the source `shop` and is evaluated by the
pipeline. All others are types of the graph and are evaluated by the engine (docs/design/pipeline.md, "Which host
answers"). Policies are applied afterwards (`views.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import msgspec

from vedette.errors import SubscriptionError
from vedette.filters.collection_query import CollectionQuery
from vedette.filters.document_filter import DocumentFilter, compile_filter
from vedette.filters.inputs import FilterInput
from vedette.filters.limits import FilterLimits
from vedette.gateway.collections.snapshot import PartitionPosition
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.stream_key import stream_key
from vedette.gateway.wire.messages import Subscribe
from vedette.language.syntax.canonical import canonical_text
from vedette.language.syntax.expressions import NamedType, NodePattern, TypeExpression, UnionType
from vedette.language.syntax.statements import Watch
from vedette.policy.collection_policies import ViewRule
from vedette.subscriptions.collection_watch import CollectionWatch, parse_collection_watch
from vedette.subscriptions.policy_view import TRUSTED_LIMITS, DocumentView
from vedette.subscriptions.spec import SubscriptionSpec, filter_expression, spec_from_query, watch_of_spec

__all__ = [
    "CollectionRequest",
    "CollectionView",
    "SavedCollectionStream",
    "has_external_type",
    "is_external",
    "query_from_filter",
    "query_from_saved",
    "query_from_watch",
]

SEPARATOR = "::"
_window_ids = count()
"""Makes windowed watches unique: they are never shared, because the first event of each is `initial`."""


class CollectionView(NamedTuple):
    """The part of a collection that policies show to an actor."""

    spec: SubscriptionSpec
    """The subscription combined with the policies; the pipeline evaluates it."""
    condition: DocumentFilter
    view: DocumentView


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRequest:
    """What a subscription over external collections asks for. Subscriptions with equal keys share a stream."""

    key: bytes
    collections: tuple[str, ...]
    """Names as the client writes them, such as `shop::orders`; several spec a union."""
    spec: SubscriptionSpec
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
        return None if self.views is None else {name: view.spec.view for name, view in self.views.items()}

    def spec_of(self, collection: str) -> SubscriptionSpec:
        return self.spec if self.views is None else self.views[collection].spec

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
    """State of a stream that the next server needs to continue it. Stored as JSON in `gateway.window`
    (`broker/window_file.py`); change its version with any change of these fields.
    """

    spec: SubscriptionSpec
    """The subscription without policies, in the format of the registry."""
    collections: tuple[str, ...] = msgspec.field(name="collections")
    view_rules: dict[str, tuple[ViewRule, ...] | None] | None = msgspec.field(name="view_rules")
    """Policy rules by collection; None if everything was visible."""
    include_data: bool = msgspec.field(name="include_data")
    low_priority: bool = msgspec.field(name="low_priority")
    after: int = msgspec.field(name="published_offset")
    """Everything up to this journal offset is published."""
    positions: dict[int, PartitionPosition] = msgspec.field(name="partition_positions")
    """Position up to which each of these partitions is published, beyond `after`."""
    epochs: dict[int, int] = msgspec.field(name="partition_epochs")
    """Epoch of every partition; a changed epoch means that the partition lost its history."""


def is_external(collection: str) -> bool:
    return SEPARATOR in collection


def has_external_type(statement: Watch) -> bool:
    """Return True if any element of the pattern has an external type."""
    return any(
        isinstance(element, NodePattern) and any(map(is_external, _names(element.type)))
        for element in statement.pattern.elements
    )


def _names(type_: TypeExpression | None) -> Iterator[str]:
    if isinstance(type_, NamedType):
        yield type_.name
    elif isinstance(type_, UnionType):
        for member in type_.members:
            yield from _names(member)


def query_from_watch(
    client: Client, text: str, params: dict[str, Any], payload: Subscribe, limits: FilterLimits
) -> CollectionRequest:
    """Parse a WATCH. Raise E6204 if the pipeline does not support it."""
    watch = parse_collection_watch(text, params)
    _check_supported(watch)
    window_id = str(next(_window_ids)) if watch.windowed else ""
    spec = SubscriptionSpec(
        kind="watch",
        source=text,
        params=params,
        time=client.tenant.clock.now() if watch.windowed else None,
        union_id=window_id if len(watch.collections) > 1 else "",
    )
    condition = compile_filter(filter_expression(spec), limits=limits)
    return CollectionRequest(
        key=_key(
            client,
            "watch",
            payload.priority,
            canonical_text(list(watch.collections)),
            canonical_text(condition.expression),
            canonical_text(watch.columns),
            watch.options.ordering.kind,
            window_id,
        ),
        collections=watch.collections,
        spec=spec,
        condition=condition,
        watch=watch,
        low_priority=payload.priority == "low",
        snapshot=watch.options.initial.kind == "full" and not watch.windowed,
    )


def query_from_filter(
    client: Client, asked: dict[str, Any], query: CollectionQuery, payload: Subscribe, limits: FilterLimits
) -> CollectionRequest:
    """Bind a filter to its requester. `asked`: the query as the client sent it; `query`: the same, parsed."""
    spec = spec_from_query(asked, client.request_auth(), client.tenant.clock.now())
    condition = compile_filter(filter_expression(spec), limits=limits)
    data = "data" if payload.includeData else "no data"
    return CollectionRequest(
        key=_key(
            client, "filter", payload.priority, query.collection, canonical_text(condition.expression), data
        ),
        collections=(query.collection,),
        spec=spec,
        condition=condition,
        include_data=payload.includeData,
        low_priority=payload.priority == "low",
        snapshot=payload.sendSnapshot,
        query=query,
    )


def query_from_saved(key: bytes, saved: SavedCollectionStream) -> CollectionRequest:
    """Return the request of a saved stream, without policy views."""
    return CollectionRequest(
        key=key,
        collections=saved.collections,
        spec=saved.spec,
        condition=compile_filter(filter_expression(saved.spec), limits=TRUSTED_LIMITS),
        watch=watch_of_spec(saved.spec),
        include_data=saved.include_data,
        low_priority=saved.low_priority,
    )


def _check_supported(watch: CollectionWatch) -> None:
    """Raise E6204 for options that gateways do not support on external collections. `buffer` is accepted: the replay
    window takes its place.
    """
    graph = [name for name in watch.collections if not is_external(name)]
    if graph:
        text = f"a union cannot combine external collections with graph types ({graph[0]}): use two watches"
        raise SubscriptionError("E6204", text)
    if watch.options.on_full != "drop":
        text = "the option on_full is not supported for external collections over the network: omit it"
        raise SubscriptionError("E6204", text, fields={"option": "on_full"})


def _key(client: Client, *request: str) -> bytes:
    """Return the stream key (`stream_key.py`). `request`: "watch" or "filter", then what the subscription asks for."""
    return stream_key("collection", client.tenant.name, client.effective_actor, *request)
