"""One connection as the broker sees it: its identity, its subscriptions, its deferred requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from vedette.engine.session.session import Session
from vedette.gateway.streams.stream import Stream, SubscriptionAddress
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import Port

__all__ = ["Client"]

NO_ACKS: dict[str | None, link.AckEvents] = {}
"""Shared by all clients without deferred acks, because one dict per client would dominate their memory."""


class Client:
    """One connection. Its actor can change: the system context may act as another actor (`BEGIN SESSION AS`)."""

    __slots__ = (
        "_actor",
        "_claims",
        "_system",
        "busy",
        "checksum",
        "conn",
        "deferred_acks",
        "deferred_requests",
        "local",
        "port",
        "session",
        "subscriptions",
        "tenant",
    )

    def __init__(self, port: Port, record: link.OpenConnection, tenant: Tenant) -> None:
        self.port, self.conn, self.tenant = port, record.conn, tenant
        self._actor, self._system, self._claims = record.actor, record.system, record.claims
        self.checksum, self.local = record.checksum, record.local
        self.session: Session | None = None
        """The connection's own session, created for its first statement."""
        self.subscriptions: dict[str, Stream] = {}
        self.busy = False
        """True while a long read runs in a thread."""
        self.deferred_requests: deque[Any] | None = None
        """Requests deferred while the client is busy."""
        self.deferred_acks: dict[str | None, link.AckEvents] = NO_ACKS
        """Acks deferred while the client is busy; only the latest per subscription."""

    def update_claims(self, claims: dict[str, Any]) -> None:
        """Replace the claims after the client presented a new token."""
        self._claims = claims

    def defer(self, record: Any) -> None:
        """Keep a request until the client is no longer busy."""
        if isinstance(record, link.AckEvents):
            known = self.deferred_acks.get(record.sub_id)
            if known is None or known.seq < record.seq:
                self.deferred_acks = {**self.deferred_acks, record.sub_id: record}
            return
        self.deferred_requests = self.deferred_requests if self.deferred_requests is not None else deque()
        self.deferred_requests.append(record)

    def take_deferred_acks(self) -> list[link.AckEvents]:
        """Return and clear the acks deferred while the client was busy."""
        acks, self.deferred_acks = list(self.deferred_acks.values()), NO_ACKS
        return acks

    def address(self, sub_id: str) -> SubscriptionAddress:
        return SubscriptionAddress(self.port, self.conn, sub_id)

    def own_session(self) -> Session:
        """Return the connection's own session, which holds its transaction, names and exclusive watches."""
        if self.session is None:
            database = self.tenant.database
            session = database.session(self.effective_actor)
            session.allow_long_reads = False
            session.watch_limits = (
                database.settings.max_watches_per_session,
                database.settings.max_watches_total,
            )
            self.session = session
        return self.session

    def request_auth(self) -> dict[str, Any] | None:
        """Return `request.auth` of a filter, bound at subscription; None in the system context."""
        if self.system:
            return None
        claims = {k: v for k, v in self.claims.items() if isinstance(v, str | int | float | bool | list)}
        return {"userId": self.actor, "roles": claims.get("roles", []), "claims": claims}

    @property
    def effective_actor(self) -> str | None:
        """Actor whose policies apply now; None in the system context."""
        return None if self.system else self.actor

    @property
    def actor(self) -> str | None:
        return self._actor if self.session is None else self.session.actor

    @property
    def token_actor(self) -> str | None:
        """The actor of the token, regardless of `BEGIN SESSION AS`."""
        return None if self._system else self._actor

    @property
    def system(self) -> bool:
        return self._system if self.session is None else self.session.actor is None

    @property
    def claims(self) -> Mapping[str, Any]:
        """Claims of the token; empty while the session acts as another actor."""
        return self._claims if self.actor == self._actor else {}
