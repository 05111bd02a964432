"""Counters of active subscriptions, and the limits on them.

A subscription counts in four scopes: `all`, `gateway:NUMBER`, `tenant:NAME` and `collection:TENANT/NAME`. The counters
are rows of the table `counts` and change in the transaction that adds or ends the subscription.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from vedette.errors import SubscriptionError
from vedette.storage.sql_database import SqlTransaction

__all__ = ["Quotas", "charge", "count_in", "refund"]

_ADD = (
    "INSERT INTO counts VALUES (?, ?) ON CONFLICT (scope)"
    " DO UPDATE SET subscriptions = counts.subscriptions + excluded.subscriptions RETURNING subscriptions"
)


class Quotas(NamedTuple):
    """Maximum numbers of active subscriptions."""

    gateway: int = 200_000
    tenant: int = 1_000_000
    total: int = 2_000_000
    collection: int = 1_000_000
    """Per tenant and collection, so that one tenant cannot fill the index of a collection alone."""

    def limit_of(self, scope: str) -> int:
        limits = {
            "all": self.total,
            "gateway": self.gateway,
            "tenant": self.tenant,
            "collection": self.collection,
        }
        return limits[scope.partition(":")[0]]


Owner = tuple[int, str, str]
"""Gateway number, tenant and collection of a subscription."""


def charge(db: SqlTransaction, owners: Iterable[Owner], quotas: Quotas) -> None:
    """Count new subscriptions. Raises E6203 if a scope exceeds its quota; the caller's transaction then rolls back."""
    for scope, added in _count_by_scope(owners).items():
        ((total,),) = db.execute(_ADD, (scope, added))
        limit = quotas.limit_of(scope)
        if total > limit:
            text = f"{scope} would have {total} subscriptions, its limit is {limit}: end some, or raise the limit"
            raise SubscriptionError("E6203", text, fields={"scope": scope, "limit": limit})


def refund(db: SqlTransaction, owners: Iterable[Owner]) -> None:
    """Stop counting subscriptions that ended."""
    for scope, removed in _count_by_scope(owners).items():
        db.execute(_ADD, (scope, -removed))


def count_in(db: SqlTransaction, scope: str) -> int:
    rows = db.execute("SELECT subscriptions FROM counts WHERE scope = ?", (scope,))
    return int(rows[0][0]) if rows else 0


def _count_by_scope(owners: Iterable[Owner]) -> Counter[str]:
    return Counter(
        scope
        for gateway, tenant, collection in owners
        for scope in ("all", f"gateway:{gateway}", f"tenant:{tenant}", f"collection:{tenant}/{collection}")
    )
