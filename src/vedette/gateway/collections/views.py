"""Policy views of external collections: applied on subscribe and reviewed after commits that may change them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from vedette.engine.collection_access import (
    CollectionRules,
    CollectionRulesListener,
    check_collection_access,
    collection_rules,
)
from vedette.engine.commit.lock import LockScope
from vedette.errors import StoreError, SubscriptionError, VedetteError, WatchError
from vedette.filters.document_filter import compile_filter
from vedette.gateway.collections.stream import CollectionRequest, CollectionStream, CollectionView
from vedette.language.syntax.expressions import Attribute, Expression, Variable
from vedette.language.syntax.visit import walk
from vedette.subscriptions.collection_watch import CollectionWatch
from vedette.subscriptions.policy_view import TRUSTED_LIMITS
from vedette.subscriptions.spec import filter_expression, view_of

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.gateway.broker.broker import Client
    from vedette.gateway.streams.tenant import Tenant

__all__ = ["PolicyReview", "apply_policies", "current_views"]

_audit = logging.getLogger("vedette.audit")


def apply_policies(client: Client, wanted: CollectionRequest, pattern: str) -> CollectionRequest:
    """Return the request restricted to what policies show the client. Raise E8001 if they deny it."""
    if client.system or client.actor is None:
        return wanted
    used = _attributes(wanted.condition.expression, wanted.watch)
    database = client.desk.database
    sights = check_collection_access(database, client.actor, wanted.collections, used, pattern)
    return wanted if sights is None else replace(wanted, views=_eyes(database, wanted, sights, client.actor))


def current_views(actor: str | None, database: Database, wanted: CollectionRequest) -> CollectionRequest:
    """Return the request with the actor's current views, without checking that the actor may watch."""
    if actor is None:
        return wanted
    sights = collection_rules(database, actor, wanted.collections)
    return wanted if sights is None else replace(wanted, views=_eyes(database, wanted, sights, actor))


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


def _eyes(
    database: Database, wanted: CollectionRequest, sights: CollectionRules, actor: str
) -> Mapping[str, CollectionView]:
    """Return the views by collection. Raise E8001 if a policy cannot be applied to documents, E6204 if the filter
    cannot be combined with it.
    """
    found = {}
    for name, rules in sights.items():
        form = msgspec.structs.replace(wanted.form, sight=rules)
        try:
            sight = view_of(form)
        except SubscriptionError as error:
            ids = {"tenant": database.name, "actor": actor, "pattern": name}
            extra = {"action": "watch.denied", **ids, "reason": error.text}
            _audit.warning("A watch was denied to %s", actor, extra=extra)
            raise WatchError("E8001", "Watch pattern denied") from None
        assert sight is not None
        found[name] = CollectionView(
            form, compile_filter(filter_expression(form), limits=TRUSTED_LIMITS), sight
        )
    return found


class PolicyReview:
    """Reviews the views of actors' streams after commits that may have changed them."""

    def __init__(
        self,
        call: Callable[[Callable[[], object]], None],
        see_anew: Callable[[CollectionStream, Mapping[str, CollectionView] | None], None],
        end: Callable[[CollectionStream, VedetteError], None],
    ) -> None:
        """`call` runs a function on the engine thread. `see_anew` and `end` apply the outcome of a review."""
        self._call, self._see_anew, self._end = call, see_anew, end
        self._streams: dict[Tenant, dict[CollectionStream, None]] = {}
        self._bells: dict[Tenant, CollectionRulesListener] = {}
        self._rung: set[Tenant] = set()

    def add(self, stream: CollectionStream) -> None:
        if stream.actor is None:
            return
        desk = stream.desk
        if desk not in self._bells:
            self._bells[desk] = CollectionRulesListener(desk.database, lambda: self._ring(desk))
        self._bells[desk].actors.add(stream.actor)
        self._streams.setdefault(desk, {})[stream] = None

    def remove(self, stream: CollectionStream) -> None:
        streams = self._streams.get(stream.desk, {})
        if stream not in streams:
            return
        del streams[stream]
        if not streams:
            del self._streams[stream.desk]
            self._bells.pop(stream.desk).close()

    def _ring(self, desk: Tenant) -> None:
        """Schedule a review. Called from any thread, holding the database's lock."""
        if desk not in self._rung:
            self._rung.add(desk)
            self._call(lambda: self._review(desk))

    def _review(self, desk: Tenant) -> None:
        """Review all streams of a tenant once the commit is durable, so that no right is applied that a crash could
        undo.
        """
        self._rung.discard(desk)
        with suppress(StoreError):  # lost commits are gone; review the current state
            desk.database.wait_durable(LockScope(desk.database).observe())
        for stream in list(self._streams.get(desk, ())):
            try:
                self._review_stream(stream)
            except VedetteError as error:
                self._end(stream, error)

    def _review_stream(self, stream: CollectionStream) -> None:
        assert stream.actor is not None
        wanted = stream.wanted
        sights = collection_rules(stream.desk.database, stream.actor, wanted.collections)
        if sights != wanted.view_rules:
            eyes = None if sights is None else _eyes(stream.desk.database, wanted, sights, stream.actor)
            self._see_anew(stream, eyes)
