"""Recognizes subscriptions to external collections and parses them.

A type or collection with a prefix, such as `shop::orders`, belongs to the source `shop` and is evaluated by the
pipeline. All others are types of the graph and are evaluated by the engine (docs/design/pipeline.md, "Which host
answers").
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from vedette.errors import PolicyError, SubscriptionError
from vedette.filters.collection_query import CollectionQuery
from vedette.filters.document_filter import compile_filter
from vedette.filters.limits import FilterLimits
from vedette.gateway.collections.stream import CollectionRequest, SavedCollectionStream
from vedette.gateway.collections.views import apply_policies, current_views
from vedette.gateway.wire.messages import Subscribe
from vedette.gateway.wire.resume_token import subscription_hash
from vedette.language.syntax.canonical import canonical_text
from vedette.language.syntax.expressions import NamedType, NodePattern, TypeExpression, UnionType
from vedette.language.syntax.statements import Watch
from vedette.subscriptions.collection_watch import CollectionWatch, parse_collection_watch
from vedette.subscriptions.policy_view import TRUSTED_LIMITS
from vedette.subscriptions.spec import SubscriptionSpec, filter_expression, spec_from_query, watch_of_spec

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Client
    from vedette.gateway.streams.tenant import Tenant

__all__ = [
    "has_external_type",
    "is_external",
    "query_from_filter",
    "query_from_saved",
    "query_from_watch",
    "request_auth",
]

SEPARATOR = "::"
_windows = count()
"""Makes windowed watches unique: they are never shared, because the first event of each is `initial`."""


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
    """Parse a WATCH. Raise E6204 if the pipeline does not support it, E8001 if policies deny it."""
    watch = parse_collection_watch(text, params)
    _check_supported(watch)
    own = str(next(_windows)) if watch.windowed else ""
    form = SubscriptionSpec(
        kind="watch",
        source=text,
        params=params,
        time=client.tenant.clock.now() if watch.windowed else None,
        union=own if len(watch.collections) > 1 else "",
    )
    condition = compile_filter(filter_expression(form), limits=limits)
    request = CollectionRequest(
        key=_key(
            client,
            "watch",
            payload.priority,
            *watch.collections,
            canonical_text(condition.expression),
            canonical_text(watch.columns),
            watch.options.ordering.kind,
            own,
        ),
        collections=watch.collections,
        form=form,
        condition=condition,
        watch=watch,
        low_priority=payload.priority == "low",
        snapshot=watch.options.initial.kind == "full" and not watch.windowed,
    )
    return apply_policies(client, request, text)


def query_from_filter(
    client: Client, asked: dict[str, Any], query: CollectionQuery, payload: Subscribe, limits: FilterLimits
) -> CollectionRequest:
    auth = request_auth(client)
    form = spec_from_query(asked, auth, client.tenant.clock.now())
    condition = compile_filter(filter_expression(form), limits=limits)
    data = f"{payload.priority} {payload.includeData}"
    request = CollectionRequest(
        key=_key(client, "filter", query.collection, canonical_text(condition.expression), data),
        collections=(query.collection,),
        form=form,
        condition=condition,
        include_data=payload.includeData,
        low_priority=payload.priority == "low",
        snapshot=payload.sendSnapshot,
        query=query,
    )
    return apply_policies(client, request, query.collection)


def query_from_saved(
    tenant: Tenant, key: bytes, actor: str | None, saved: SavedCollectionStream
) -> CollectionRequest:
    """Return the request of a saved stream. Raise E7001 if its actor's views have changed."""
    request = CollectionRequest(
        key=key,
        collections=saved.collections,
        form=saved.form,
        condition=compile_filter(filter_expression(saved.form), limits=TRUSTED_LIMITS),
        watch=watch_of_spec(saved.form),
        include_data=saved.include_data,
        low_priority=saved.low_priority,
    )
    request = current_views(actor, tenant.database, request)
    if request.view_rules != saved.sights:
        raise PolicyError("E7001", "Permission denied")
    return request


def request_auth(client: Client) -> dict[str, Any] | None:
    """Return `request.auth` of a filter, bound at subscription; None in the system context."""
    if client.system:
        return None
    claims = {k: v for k, v in client.claims.items() if isinstance(v, str | int | float | bool | list)}
    return {"userId": client.actor, "roles": claims.get("roles", []), "claims": claims}


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


def _key(client: Client, *parts: str) -> bytes:
    actor = "" if client.system else client.actor or ""
    return subscription_hash(client.tenant.name, actor, "collection", *parts)
