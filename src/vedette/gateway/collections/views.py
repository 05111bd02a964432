"""Policy views of external collections: applied on subscribe and reviewed after commits that may change them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import msgspec

from vedette.engine.collection_access import (
    CollectionRules,
    CollectionRulesListener,
    check_collection_access,
    collection_rules,
)
from vedette.engine.commit.lock import LockScope
from vedette.engine.database import Database
from vedette.errors import StoreError, SubscriptionError, VedetteError, WatchError
from vedette.filters.document_filter import compile_filter
from vedette.gateway.collections.queries import CollectionRequest, CollectionView
from vedette.gateway.collections.stream import CollectionStream
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.tenant import Tenant
from vedette.language.syntax.expressions import Attribute, Expression, Variable
from vedette.language.syntax.visit import walk
from vedette.subscriptions.collection_watch import CollectionWatch
from vedette.subscriptions.policy_view import TRUSTED_LIMITS
from vedette.subscriptions.spec import filter_expression, view_of

__all__ = ["AccessLost", "PoliciesChanged", "PolicyReview", "ViewsChanged", "apply_policies", "current_views"]

_audit = logging.getLogger("vedette.audit")


def apply_policies(client: Client, request: CollectionRequest, pattern: str) -> CollectionRequest:
    """Return the request restricted to what policies show the client. Raise E8001 if they deny it."""
    if client.system or client.actor is None:
        return request
    used = _attributes(request.condition.expression, request.watch)
    database = client.tenant.database
    rules = check_collection_access(database, client.actor, request.collections, used, pattern)
    return (
        request
        if rules is None
        else replace(request, views=_make_views(database, request, rules, client.actor))
    )


def current_views(actor: str | None, database: Database, request: CollectionRequest) -> CollectionRequest:
    """Return the request with the actor's current views, without checking that the actor may watch."""
    if actor is None:
        return request
    rules = collection_rules(database, actor, request.collections)
    return request if rules is None else replace(request, views=_make_views(database, request, rules, actor))


def _attributes(condition: Expression, watch: CollectionWatch | None) -> list[str]:
    """Return the document attributes that the request tests or returns."""
    asked: list[Expression] = [condition]
    names: list[str] = []
    if watch is not None:
        names += [path[1] for _, path in watch.columns if len(path) > 1]
        names += [c.operand[1] for c in watch.aggregates if c.operand is not None and len(c.operand) > 1]
        asked += [c.where for c in watch.aggregates if c.where is not None]
    for tree in asked:
        names += [n.name for n in walk(tree) if isinstance(n, Attribute) and n.base == Variable("doc")]
    return list(dict.fromkeys(names))


def _make_views(
    database: Database, request: CollectionRequest, rules_by_collection: CollectionRules, actor: str
) -> Mapping[str, CollectionView]:
    """Return the views by collection. Raise E8001 if a policy cannot be applied to documents, E6204 if the filter
    cannot be combined with it.
    """
    found = {}
    for name, rules in rules_by_collection.items():
        spec = msgspec.structs.replace(request.spec, view=rules)
        try:
            view = view_of(spec)
        except SubscriptionError as error:
            ids = {"tenant": database.name, "actor": actor, "pattern": name}
            extra = {"action": "watch.denied", **ids, "reason": error.text}
            _audit.warning("A watch was denied to %s", actor, extra=extra)
            raise WatchError("E8001", "Watch pattern denied") from None
        assert view is not None
        found[name] = CollectionView(
            spec, compile_filter(filter_expression(spec), limits=TRUSTED_LIMITS), view
        )
    return found


class PoliciesChanged(NamedTuple):
    """Event for the engine thread: a commit may have changed what actors of this database see."""

    tenant: Tenant


class ViewsChanged(NamedTuple):
    """Outcome of a review: the stream's actor now has other views. None: everything is visible."""

    stream: CollectionStream
    views: Mapping[str, CollectionView] | None


class AccessLost(NamedTuple):
    """Outcome of a review: the stream's actor may no longer watch the collection."""

    stream: CollectionStream
    error: VedetteError


class PolicyReview:
    """Reviews the views of actors' streams after commits that may have changed them. Engine thread only."""

    def __init__(self, post_event: Callable[[PoliciesChanged], None]) -> None:
        """`post_event` passes an event to the engine thread. It is called from any thread."""
        self._post_event = post_event
        self._streams: dict[Tenant, dict[CollectionStream, None]] = {}
        self._listeners: dict[Tenant, CollectionRulesListener] = {}
        self._scheduled: set[Tenant] = set()

    def add(self, stream: CollectionStream) -> None:
        if stream.actor is None:
            return
        tenant = stream.tenant
        if tenant not in self._listeners:
            self._listeners[tenant] = CollectionRulesListener(tenant.database, lambda: self._schedule(tenant))
        self._listeners[tenant].actors.add(stream.actor)
        self._streams.setdefault(tenant, {})[stream] = None

    def remove(self, stream: CollectionStream) -> None:
        streams = self._streams.get(stream.tenant, {})
        if stream not in streams:
            return
        del streams[stream]
        if not streams:
            del self._streams[stream.tenant]
            self._listeners.pop(stream.tenant).close()

    def _schedule(self, tenant: Tenant) -> None:
        """Schedule a review. Called from any thread, holding the database's lock."""
        if tenant not in self._scheduled:
            self._scheduled.add(tenant)
            self._post_event(PoliciesChanged(tenant))

    def review(self, tenant: Tenant) -> list[ViewsChanged | AccessLost]:
        """Return the streams of a tenant whose views differ from their actor's current ones.

        Waits until the commit is durable, so that no right is applied that a crash could undo.
        """
        self._scheduled.discard(tenant)
        with suppress(StoreError):  # lost commits are gone; review the current state
            tenant.database.wait_durable(LockScope(tenant.database).observe())
        reviewed = (self._review_stream(stream) for stream in list(self._streams.get(tenant, ())))
        return [outcome for outcome in reviewed if outcome is not None]

    def _review_stream(self, stream: CollectionStream) -> ViewsChanged | AccessLost | None:
        assert stream.actor is not None
        database, request = stream.tenant.database, stream.request
        try:
            rules = collection_rules(database, stream.actor, request.collections)
            if rules == request.view_rules:
                return None
            views = None if rules is None else _make_views(database, request, rules, stream.actor)
        except VedetteError as error:
            return AccessLost(stream, error)
        return ViewsChanged(stream, views)
