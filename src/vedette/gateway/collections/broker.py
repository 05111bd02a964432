"""External collections at the broker. Engine thread only.

`CollectionSubscriber` opens and joins streams, `CollectionPublisher` turns delivered changes into events, and
`PolicyReview` finds streams whose policies changed. This module connects them and decides what happens to a stream
that cannot continue. If continuity is lost (the source lost its log, or the gateway lost its lease), the affected
streams are closed and their subscribers get resync-required. No event is ever dropped silently.

A stream of an actor is registered with the actor's policy views. When the views change, the stream is registered again
and publishes the difference between the rows visible before and the rows visible at the new start offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from vedette.errors import SourceError, VedetteError
from vedette.filters.collection_query import CollectionQuery
from vedette.gateway.collections.ingest_server import DeliveryReady, FrameReceived
from vedette.gateway.collections.publish import CollectionPublisher, Published, ResyncStreams
from vedette.gateway.collections.queries import (
    SavedCollectionStream,
    query_from_filter,
    query_from_watch,
)
from vedette.gateway.collections.registry_thread import (
    JobFailed,
    LeaseLost,
    RegistryThread,
    SnapshotRead,
    SourceRemoved,
    StreamRegistered,
)
from vedette.gateway.collections.stream import CollectionStream
from vedette.gateway.collections.subscribe import CollectionSubscriber
from vedette.gateway.collections.views import AccessLost, PoliciesChanged, PolicyReview, apply_policies
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.pump import StreamPump
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.stream_key import claims_hash, depends_on_claims
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import Subscribe, error_payload
from vedette.transport.ingest_messages import Complete, Deliver, Status

__all__ = ["CollectionBroker", "CollectionEvent"]

log = logging.getLogger(__name__)
CollectionEvent: TypeAlias = (
    DeliveryReady
    | FrameReceived
    | StreamRegistered
    | SnapshotRead
    | JobFailed
    | LeaseLost
    | SourceRemoved
    | PoliciesChanged
)
"""Events that other threads post to the engine thread for the collection broker."""


class CollectionBroker:
    """Serves subscriptions to external collections."""

    def __init__(
        self,
        send_queue: SendQueue,
        subscriptions: SubscriptionTable,
        pump: StreamPump,
        registry_thread: RegistryThread,
        *,
        limits: GatewayLimits,
        post_event: Callable[[Any], None],
    ) -> None:
        """`post_event` passes an event to the engine thread. It may be called from any thread."""
        self._send_queue, self._subscriptions, self._pump = send_queue, subscriptions, pump
        self._limits = limits
        self._policy_review = PolicyReview(post_event)
        self._publisher = CollectionPublisher()
        self._subscriber = CollectionSubscriber(
            send_queue,
            subscriptions,
            pump,
            self._publisher,
            registry_thread,
            self._policy_review,
            limits=limits,
        )
        self.resyncs = 0
        """Number of streams that had to resync."""

    @property
    def streams(self) -> int:
        """Number of registered subscriptions."""
        return len(self._publisher.streams_by_subscription_id)

    @property
    def events(self) -> int:
        """Number of events published to collection streams."""
        return self._publisher.events

    # --- subscribe ----------------------------------------------------------------------------------------------

    def subscribe_watch(
        self, client: Client, sub_id: str, text: str, params: dict[str, Any], payload: Subscribe
    ) -> None:
        """Subscribe to a WATCH. Raise E6204 if the pipeline does not support it, E8001 if policies deny it."""
        request = query_from_watch(client, text, params, payload, self._limits.filters)
        self._apply(self._subscriber.subscribe(client, sub_id, apply_policies(client, request, text)))

    def subscribe_filter(
        self, client: Client, sub_id: str, asked: dict[str, Any], query: CollectionQuery, payload: Subscribe
    ) -> None:
        """Subscribe to a filter. `asked`: the query as the client sent it; `query`: the same, parsed."""
        request = query_from_filter(client, asked, query, payload, self._limits.filters)
        request = apply_policies(client, request, query.collection)
        self._apply(self._subscriber.subscribe(client, sub_id, request))
        if depends_on_claims(query, client.tenant.clock.now()):
            client.subscriptions[sub_id].claims_hash = claims_hash(client.request_auth())

    def restore_stream(
        self, tenant: Tenant, key: bytes, actor: str | None, saved: SavedCollectionStream, position: int
    ) -> CollectionStream:
        """Continue a stream of the previous server. Raise VedetteError if its actor's views have changed."""
        return self._subscriber.restore_stream(tenant, key, actor, saved, position)

    def save(self) -> None:
        """Save the positions of all streams for the next server. Called on graceful shutdown."""
        for stream in self._publisher.streams_by_subscription_id.values():
            stream.save(self._publisher.published_offset(stream))

    # --- events of other threads --------------------------------------------------------------------------------

    def handle_event(self, event: CollectionEvent) -> None:
        """Process an event that another thread posted to the engine thread."""
        match event:
            case DeliveryReady(connection=connection):
                delivery = connection.next_delivery()
                if delivery is not None:
                    self.receive(delivery)
                    connection.accept(delivery.number)
            case FrameReceived(frame=frame):
                self.receive(frame)
            case StreamRegistered() | SnapshotRead() | JobFailed():
                self._apply(self._subscriber.on_result(event))
            case LeaseLost():
                self._on_lease_lost()
            case SourceRemoved(name=name):
                self._on_source_removed(name)
            case PoliciesChanged(tenant=tenant):
                self._on_policies_changed(tenant)

    def receive(self, frame: Deliver | Complete | Status) -> None:
        """Process one frame of an ingest link. Frames arrive in order."""
        self._apply(self._publisher.receive(frame))

    def _apply(self, outcomes: Iterable[Published | ResyncStreams]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Published):
                self._pump.publish(outcome.stream, outcome.event)
            else:
                self._resync(outcome.streams, outcome.reason)

    def _on_policies_changed(self, tenant: Tenant) -> None:
        for outcome in self._policy_review.review(tenant):
            if isinstance(outcome, AccessLost):
                self._end(outcome.stream, outcome.error)
                continue
            try:
                self._apply(self._subscriber.change_views(outcome.stream, outcome.views))
            except VedetteError as error:
                self._end(outcome.stream, error)

    # --- streams that cannot continue ---------------------------------------------------------------------------

    def _end(self, stream: CollectionStream, error: VedetteError) -> None:
        """End a stream whose actor may no longer see anything."""
        stream.resumable_until = 0.0
        for subscriber in self._subscriber.unanswered_subscribers(stream):
            self._subscriber.reject(stream, subscriber, error)
        self._pump.end_streams([stream], "cancelled", [error_payload(error)])
        stream.tenant.close_stream(stream)

    def _on_lease_lost(self) -> None:
        """Resync all streams: the lease was lost, and with it the deliveries since then."""
        self._resync(self._publisher.streams_by_subscription_id.values(), "gap")
        self._publisher.discard_early()

    def _on_source_removed(self, source: str) -> None:
        """End all streams over the collections of a removed source."""
        error = SourceError("E6103", f"the source '{source}' was removed", fields={"source": source})
        prefix = f"{source}::"
        for stream in set(self._publisher.streams_by_subscription_id.values()):
            if any(name.startswith(prefix) for name in stream.request.collections):
                self._end(stream, error)

    def _resync(self, streams: Iterable[CollectionStream], reason: str) -> None:
        """Close streams and send each of their subscribers one resync-required.

        A subscriber without a reply is subscribed again instead: for its client the request is still pending.
        """
        lost = dict.fromkeys(streams)
        if not lost:
            return
        self.resyncs += len(lost)
        log.warning(
            "%d streams over collections must resync: %s",
            len(lost),
            reason,
            extra={"action": "collection.resync", "reason": reason},
        )
        unanswered = [each for stream in lost for each in self._subscriber.unanswered_subscribers(stream)]
        for stream in lost:
            stream.resumable_until = 0.0  # the stream cannot be resumed
        for client, sub_id in self._subscriptions.subscribers_of(lost):
            self._send_queue.reply(
                client, link.ResyncRequired(conn=client.conn, sub_id=sub_id, reason=reason)
            )
            self._subscriptions.remove(client, sub_id)
        for stream in lost:
            stream.tenant.close_stream(stream)
        for subscriber in unanswered:
            self._apply(self._subscriber.subscribe(*subscriber))
