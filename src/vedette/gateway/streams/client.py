"""One connection, as the broker knows it: who it is, what it listens to, what it has asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vedette.engine.session.session import Session
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.port import Port

if TYPE_CHECKING:
    from vedette.gateway.streams.stream import Stream

__all__ = ["Client"]

NO_TRIMS: dict[str | None, link.AckEvents] = {}
"""Shared by all who have none: a dict for each would be most of their memory."""


class Client:
    """Who it is can change: the system context may act as another (`BEGIN SESSION AS`), and watches as that one."""

    __slots__ = (
        "_actor",
        "_claims",
        "_system",
        "busy",
        "checksum",
        "conn",
        "desk",
        "local",
        "port",
        "queue",
        "session",
        "subscriptions",
        "trims",
    )

    def __init__(self, port: Port, record: link.OpenConnection, desk: Tenant) -> None:
        self.port, self.conn, self.desk = port, record.conn, desk
        self._actor, self._system, self._claims = record.actor, record.system, record.claims
        self.checksum, self.local = record.checksum, record.local
        self.session: Session | None = None
        """Its own session, made for its first statement."""
        self.subscriptions: dict[str, Stream] = {}
        self.busy = False
        """A long read of it is under way elsewhere."""
        self.queue: deque[Any] | None = None
        """What it asked meanwhile."""
        self.trims: dict[str | None, link.AckEvents] = NO_TRIMS
        """What it acknowledged meanwhile: of each subscription the latest."""

    def update_claims(self, claims: dict[str, Any]) -> None:
        """It has shown a token with other claims."""
        self._claims = claims

    def defer(self, record: Any) -> None:
        """It is busy: keep what it asks."""
        if isinstance(record, link.AckEvents):
            known = self.trims.get(record.sub_id)
            if known is None or known.seq < record.seq:
                self.trims = {**self.trims, record.sub_id: record}
            return
        self.queue = self.queue if self.queue is not None else deque()
        self.queue.append(record)

    def take_deferred_acks(self) -> list[link.AckEvents]:
        """What it acknowledged while it was busy."""
        trims, self.trims = list(self.trims.values()), NO_TRIMS
        return trims

    @property
    def actor(self) -> str | None:
        return self._actor if self.session is None else self.session.actor

    @property
    def token_actor(self) -> str | None:
        """The actor of its token, whoever it acts as."""
        return None if self._system else self._actor

    @property
    def system(self) -> bool:
        return self._system if self.session is None else self.session.actor is None

    @property
    def claims(self) -> Mapping[str, Any]:
        """Of its token; whoever acts as another has none of that one's."""
        return self._claims if self.actor == self._actor else {}
