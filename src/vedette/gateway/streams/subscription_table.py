"""Connections, their subscriptions, quotas, and idle streams. Engine thread only.

A stream without subscribers is closed, or kept idle until its resume deadline if a client may resume it.

The audit log records the start and end of each subscription and each refused resume. Records go to the logger
`vedette.gateway.audit` at level INFO, each with its `action` and the ids of tenant, actor, connection and subscription.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection
from typing import Any

from vedette.clock import Clock
from vedette.errors import WatchError
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.stream import Stream
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.streams.watch_stream import WatchStream
from vedette.gateway.wire.broker_link import Port

__all__ = ["SubscriptionTable", "audit"]

_audit_log = logging.getLogger("vedette.gateway.audit")
_AUDIT_SENTENCES = {
    "subscription.created": "Subscription created",
    "subscription.ended": "Subscription ended",
    "resume.refused": "Resume refused",
}
MAX_IDLE_STREAMS = 200_000
"""Limit on idle streams kept for clients that may resume; further ones are closed at once."""


def audit(client: Client, action: str, sub_id: str, **details: Any) -> None:
    """Write one record to the audit log. `action` is a key of `_AUDIT_SENTENCES`."""
    if not _audit_log.isEnabledFor(logging.INFO):
        return
    ids = {"tenant": client.tenant.name, "actor": client.actor, "conn": client.conn, "sub": sub_id}
    _audit_log.info(_AUDIT_SENTENCES[action], extra={"action": action, **ids, **details})


class SubscriptionTable:
    """The connections and subscriptions of all databases."""

    def __init__(self, limits: GatewayLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self.clients: dict[tuple[Port, int], Client] = {}
        """Open connections, by gateway and connection id."""
        self.count = 0
        """Number of subscriptions."""
        self.stream_count = 0
        """Number of streams, idle ones included."""
        self._last_stream_id = 0
        self._idle: deque[tuple[Tenant, Stream]] = deque()
        """Idle streams, in the order in which they became idle, which is also the order of their deadlines."""

    def is_connected(self, client: Client) -> bool:
        return (client.port, client.conn) in self.clients

    def is_subscribed(self, client: Client, sub_id: str, stream: Stream) -> bool:
        return self.is_connected(client) and client.subscriptions.get(sub_id) is stream

    def new_stream_id(self) -> int:
        """Count a new stream and return its id."""
        self._last_stream_id += 1
        self.stream_count += 1
        return self._last_stream_id

    def check_quotas(self, client: Client, sub_id: str) -> None:
        """Raise E8006 if one more subscription would exceed a quota. An id in use replaces its subscription."""
        if sub_id in client.subscriptions:
            return
        checks = (
            (len(client.subscriptions), self._limits.max_subscriptions_per_connection),
            (client.tenant.subscriptions, self._limits.max_subscriptions_per_tenant),
            (self.count, self._limits.max_subscriptions_total),
        )
        for current, limit in checks:
            if current >= limit:
                fields = {"current": current, "limit": limit}
                raise WatchError("E8006", f"Too many watches: {current} of {limit}", fields=fields)

    def add(self, client: Client, sub_id: str, stream: Stream) -> None:
        """Count a new subscriber of a stream. The caller sends the first messages."""
        audit(client, "subscription.created", sub_id, stream=stream.stream_id)
        client.subscriptions[sub_id] = stream
        client.tenant.subscriptions += 1
        self.count += 1
        stream.add_subscriber(client.port, checksum=client.checksum)

    def remove(self, client: Client, sub_id: str, *, may_resume: bool = False) -> None:
        """Remove a subscriber. A stream without subscribers is closed, or kept idle if a client may resume it."""
        stream = client.subscriptions.pop(sub_id, None)
        if stream is None:
            return
        audit(client, "subscription.ended", sub_id, stream=stream.stream_id)
        tenant = client.tenant
        tenant.subscriptions -= 1
        self.count -= 1
        stream.remove_subscriber(client.address(sub_id), checksum=client.checksum)
        now = self._clock.monotonic()
        if may_resume and stream.stream_key is not None:
            stream.resumable_until = now + self._limits.window.seconds
        if stream.subscriber_count:
            return
        if stream.resumable_until > now and len(self._idle) < MAX_IDLE_STREAMS:
            stream.kept_until = stream.resumable_until
            self.keep_idle(tenant, stream)
            return
        if isinstance(stream, WatchStream) and not stream.shared and not stream.feed.lasts:
            stream.feed.cancel()
        self.close_stream(tenant, stream)

    def subscribers_of(self, streams: Collection[Stream]) -> list[tuple[Client, str]]:
        """Return every subscription to one of the streams. Cost: one pass over all subscriptions of all clients."""
        return [
            (client, sub_id)
            for client in self.clients.values()
            for sub_id, stream in client.subscriptions.items()
            if stream in streams
        ]

    def keep_idle(self, tenant: Tenant, stream: Stream) -> None:
        """Keep a stream without subscribers until its `kept_until`, so that clients can resume."""
        self._idle.append((tenant, stream))

    def close_stream(self, tenant: Tenant, stream: Stream) -> None:
        """Close a stream without subscribers."""
        tenant.close_stream(stream)
        self.stream_count -= 1

    def evict_idle(self) -> None:
        """Close idle streams whose deadline has passed."""
        now = self._clock.monotonic()
        while self._idle:
            tenant, stream = self._idle[0]
            if stream.kept_until is not None and stream.kept_until > now:
                break
            self._idle.popleft()
            if stream.kept_until is not None and not stream.subscriber_count:
                stream.kept_until = None
                self.close_stream(tenant, stream)
