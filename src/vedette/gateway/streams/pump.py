"""Flushes databases, and publishes the events of watches that became ready.

Theory of operation. The engine calls `mark_ready` when a watch may have events. `flush` makes the executed requests
durable, then takes the events of every ready watch: the stream numbers, encodes and retains each event, and the send
queue gets one record per gateway. A watch that ended or failed ends its streams. Engine thread only, except
`mark_ready`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from vedette.clock import Clock
from vedette.engine.commit.lock import LockScope
from vedette.errors import StoreError, VedetteError
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.filter_stream import NodeTypeWatch
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.stream import EncodedEvent, Stream, SubscriptionAddress
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.streams.watch_stream import WatchStream
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import encode_message, error_payload

__all__ = ["StreamPump"]

log = logging.getLogger(__name__)


class StreamPump:
    """Moves events from ready watches to the send queue."""

    def __init__(
        self,
        send_queue: SendQueue,
        subscriptions: SubscriptionTable,
        *,
        limits: GatewayLimits,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        """`wake` makes the engine thread run a batch; it may be called from any thread."""
        self._send_queue, self._subscriptions = send_queue, subscriptions
        self._limits, self._clock, self._wake = limits, clock, wake
        self._ready: deque[WatchStream | NodeTypeWatch] = deque()
        self._ready_since: float | None = None
        """Monotonic time of the oldest event that is not yet numbered."""
        self._committed_at: float | None = None
        """Monotonic time of the oldest event in the group that is numbered now."""
        self.events = 0
        """Number of events published since the start."""

    def mark_ready(self, source: WatchStream | NodeTypeWatch) -> None:
        """Schedule a watch that may have events. Called from any thread, possibly with locks held."""
        if self._ready_since is None:
            self._ready_since = self._clock.monotonic()
        self._ready.append(source)
        self._wake()

    def flush(self) -> None:
        """Make executed requests durable, then number and queue the events that are ready."""
        self._committed_at, self._ready_since = self._ready_since, None
        for tenant in self._send_queue.take_touched():
            self._flush_database(tenant)
        while self._ready:
            source = self._ready.popleft()
            try:
                self.publish_ready(source)
            except VedetteError as refusal:
                self.end_streams(_streams_of(source), "cancelled", [error_payload(refusal)])
            except Exception:
                log.exception("A stream failed and was ended", extra={"action": "broker.pump_failed"})
                error = {"code": "internal", "message": "internal error; see the server log"}
                self.end_streams(_streams_of(source), "internal", [error])
        self._committed_at = None

    def _flush_database(self, tenant: Tenant) -> None:
        database = tenant.database
        if database.log_writer.durable_sequence >= database.log_writer.submitted_sequence:
            return
        try:
            database.wait_durable(LockScope(database).observe())
        except StoreError as error:
            self._send_queue.fail_replies(tenant, error)

    def publish_ready(self, source: WatchStream | NodeTypeWatch) -> None:
        """Number and queue the ready events of a watch. A watch that has ended ends its streams."""
        for stream, event in source.take_ready():
            self.publish(stream, event)
        if isinstance(source, WatchStream) and source.owner is not None:
            self._send_notices(source, source.owner)
        if source.feed.ended:
            errors = [error_payload(error) for error in source.feed.errors()]
            self.end_streams(_streams_of(source), "cancelled", errors)

    def _send_notices(self, stream: WatchStream, owner: SubscriptionAddress) -> None:
        """Send the owner of a watch its timeouts, withdrawals and failed dead letters."""
        if stream.feed.ended:
            return  # the end of the stream carries the errors
        for record in stream.feed.errors():
            payload = {"status": "notice", "subIds": [owner.sub_id], "errors": [error_payload(record)]}
            data = encode_message("status", payload)
            self._send_queue.notify(owner.port, link.Notice(conn=owner.conn, data=data))

    def publish(self, stream: Stream, event: EncodedEvent) -> None:
        """Queue an event for all subscribers of its stream. An event above the message limit ends the stream."""
        self.events += 1
        if len(event.suffix) > self._limits.max_answer_bytes:
            text = "An event is larger than the message limit: RETURN fewer or smaller values"
            fields = {"limit": self._limits.max_answer_bytes}
            self.end_streams(
                [stream], "too_large", [{"code": "too_large", "message": text, "fields": fields}]
            )
            return
        committed_at = self._committed_at if self._committed_at is not None else self._clock.monotonic()
        self._send_queue.publish(stream, event, committed_at)

    def end_streams(self, streams: Sequence[Stream], reason: str, errors: list[dict[str, Any]]) -> None:
        """Notify all subscribers that the streams ended, with the reason, and remove their subscriptions."""
        payload = {"status": "ended", "reason": reason, "errors": errors}
        ended = {stream for stream in streams if stream.subscriber_count}
        for stream in streams:
            for port in stream.subscribers_by_port:
                self._send_queue.notify(port, link.StreamEnded(stream=stream.stream_id, payload=payload))
        for client, sub_id in self._subscribers(streams, ended):
            self._subscriptions.remove(client, sub_id)

    def _subscribers(self, streams: Sequence[Stream], ended: set[Stream]) -> list[tuple[Client, str]]:
        """Return the subscriptions to `ended` streams. Exclusive streams name theirs, which avoids the search."""
        owners = [stream.owner for stream in streams if isinstance(stream, WatchStream)]
        known = [owner for owner in owners if owner is not None]
        if not ended:
            return []
        if len(known) < len(streams):
            return self._subscriptions.subscribers_of(ended)
        return [
            (client, owner.sub_id)
            for owner in known
            if (client := self._subscriptions.clients.get((owner.port, owner.conn))) is not None
            and client.subscriptions.get(owner.sub_id) in ended
        ]


def _streams_of(source: WatchStream | NodeTypeWatch) -> list[Stream]:
    return list(source.streams.values()) if isinstance(source, NodeTypeWatch) else [source]
