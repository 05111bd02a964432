"""One connection, as the broker knows it: who it is, what it listens to, what it has asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vedette.engine.session import Session
from vedette.gateway import link
from vedette.gateway.desk import Desk
from vedette.gateway.ports import Port

if TYPE_CHECKING:
    from vedette.gateway.streams import Stream

__all__ = ["Client"]


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
        "subs",
    )

    def __init__(self, port: Port, record: link.Open, desk: Desk) -> None:
        self.port, self.conn, self.desk = port, record.conn, desk
        self._actor, self._system, self._claims = record.actor, record.system, record.claims
        self.checksum, self.local = record.checksum, record.local
        self.session: Session | None = None
        """Its own session, made for its first statement."""
        self.subs: dict[str, Stream] = {}
        self.busy = False
        """A long read of it is under way elsewhere."""
        self.queue: deque[Any] | None = None

    @property
    def actor(self) -> str | None:
        return self._actor if self.session is None else self.session.actor

    @property
    def system(self) -> bool:
        return self._system if self.session is None else self.session.actor is None

    @property
    def claims(self) -> Mapping[str, Any]:
        """Of its token; whoever acts as another has none of that one's."""
        return self._claims if self.actor == self._actor else {}
