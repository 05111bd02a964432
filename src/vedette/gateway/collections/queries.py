"""Which subscriptions are about external collections, and what they ask for.

A type or collection with a name in front, `shop::orders`, is one of the source `shop` and answered by the pipeline.
Every other one is a type of the graph and answered by the engine (docs/design/pipeline.md, Which host answers).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from vedette.errors import PolicyError, SubscriptionError
from vedette.filters.collection_query import Query
from vedette.filters.document_filter import compile_filter
from vedette.filters.limits import FilterLimits
from vedette.gateway.collections.stream import LeftStream, Wanted
from vedette.gateway.collections.views import as_shown_to, through_policies
from vedette.gateway.wire.messages import Subscribe
from vedette.gateway.wire.resume_token import subscription_hash
from vedette.language.syntax.canonical import canonical_text
from vedette.language.syntax.expressions import NamedType, NodePattern, TypeExpression, UnionType
from vedette.language.syntax.statements import Watch
from vedette.subscriptions.collection_watch import WatchForm, read_watch
from vedette.subscriptions.policy_view import ACCEPTED
from vedette.subscriptions.spec import Form, expression_of, form_of_query, watch_of

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Client
    from vedette.gateway.streams.tenant import Desk

__all__ = [
    "is_external",
    "request_auth",
    "watches_collection",
    "wish_left_behind",
    "wish_of_query",
    "wish_of_watch",
]

SEPARATOR = "::"
_windows = count()
"""Watches with windows are never shared: the first event of each is `initial`, whenever it comes."""


def is_external(collection: str) -> bool:
    return SEPARATOR in collection


def watches_collection(statement: Watch) -> bool:
    """Whether any element of the pattern is of an external collection."""
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


def wish_of_watch(
    client: Client, text: str, params: dict[str, Any], payload: Subscribe, limits: FilterLimits
) -> Wanted:
    """Raises E6204 for what the pipeline does not answer, E8001 for what policies do not show."""
    watch = read_watch(text, params)
    _check_answered(watch)
    own = str(next(_windows)) if watch.windowed else ""
    form = Form(
        kind="watch",
        source=text,
        params=params,
        time=client.desk.clock.now() if watch.windowed else None,
        union=own if len(watch.collections) > 1 else "",
    )
    condition = compile_filter(expression_of(form), limits=limits)
    wanted = Wanted(
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
    return through_policies(client, wanted, text)


def wish_of_query(
    client: Client, asked: dict[str, Any], query: Query, payload: Subscribe, limits: FilterLimits
) -> Wanted:
    auth = request_auth(client)
    form = form_of_query(asked, auth, client.desk.clock.now())
    condition = compile_filter(expression_of(form), limits=limits)
    data = f"{payload.priority} {payload.includeData}"
    wanted = Wanted(
        key=_key(client, "filter", query.collection, canonical_text(condition.expression), data),
        collections=(query.collection,),
        form=form,
        condition=condition,
        include_data=payload.includeData,
        low_priority=payload.priority == "low",
        snapshot=payload.sendSnapshot,
        query=query,
    )
    return through_policies(client, wanted, query.collection)


def wish_left_behind(desk: Desk, key: bytes, actor: str | None, left: LeftStream) -> Wanted:
    """What a stream of the server before was asked for; raises when its actor would be shown something else now."""
    wanted = Wanted(
        key=key,
        collections=left.collections,
        form=left.form,
        condition=compile_filter(expression_of(left.form), limits=ACCEPTED),
        watch=watch_of(left.form),
        include_data=left.include_data,
        low_priority=left.low_priority,
    )
    wanted = as_shown_to(actor, desk.database, wanted)
    if wanted.sights != left.sights:
        raise PolicyError("E7001", "Permission denied")
    return wanted


def request_auth(client: Client) -> dict[str, Any] | None:
    """`request.auth` of a filter, bound when it is subscribed to (ruling 16); none in the system context."""
    if client.system:
        return None
    claims = {k: v for k, v in client.claims.items() if isinstance(v, str | int | float | bool | list)}
    return {"userId": client.actor, "roles": claims.get("roles", []), "claims": claims}


def _check_answered(watch: WatchForm) -> None:
    """What a gateway does not have for external collections is refused; `buffer` is the replay window's business."""
    graph = [name for name in watch.collections if not is_external(name)]
    if graph:
        text = f"a union of external collections and types of the graph ({graph[0]}) has no one host: use two watches"
        raise SubscriptionError("E6204", text)
    if watch.options.on_full != "drop":
        text = "the option on_full is not there for external collections over the network: leave it out"
        raise SubscriptionError("E6204", text, fields={"option": "on_full"})


def _key(client: Client, *parts: str) -> bytes:
    actor = "" if client.system else client.actor or ""
    return subscription_hash(client.desk.tenant, actor, "collection", *parts)
