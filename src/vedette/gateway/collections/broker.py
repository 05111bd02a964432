"""External collections at the broker: which streams exist and who subscribes to them. Engine thread only.

Theory of operation. A collection stream is one subscription at the registry. The snapshot of its first subscriber is
read at a journal offset, and the stream is registered with that start offset: the pipeline delivers every later change.
A later subscriber joins at the stream's current seq. Its snapshot contains exactly what the stream has published up to
that seq (`snapshot.py`); events published while the snapshot is read are replayed from the window, as in a resume. So
each subscriber gets one chain of events without gaps or duplicates, and each event is encoded once.

If continuity is lost (the source lost its log, or the gateway lost its lease), the affected streams are closed and
their subscribers get resync-required. No event is ever dropped silently.

A stream of an actor is registered with the actor's policy views. When the views change, the stream is registered again
and publishes the difference between the rows visible before and the rows visible at the new start offset
(`change_views`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from vedette.errors import InvalidStatement, SourceError, VedetteError
from vedette.gateway.collections.publish import CollectionPublisher
from vedette.gateway.collections.queries import query_from_saved
from vedette.gateway.collections.registry_thread import (
    RegisterJob,
    RegistryThread,
    SnapshotJob,
    SnapshotRead,
    StreamRegistered,
    UnregisterJob,
)
from vedette.gateway.collections.snapshot import Documents
from vedette.gateway.collections.stream import (
    CollectionRequest,
    CollectionStream,
    CollectionView,
    PendingSubscriber,
    PublishedRows,
    SavedCollectionStream,
    StreamState,
)
from vedette.gateway.collections.subscribe import CollectionSubscriber
from vedette.gateway.collections.views import PolicyReview
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import error_payload
from vedette.transport.ingest_messages import Complete, Deliver, Status

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Broker, Client
    from vedette.gateway.streams.tenant import Tenant

__all__ = ["CollectionBroker"]

log = logging.getLogger(__name__)


class CollectionBroker:
    def __init__(self, broker: Broker, registry_thread: RegistryThread) -> None:
        self._broker = broker
        self._registry_thread = registry_thread
        self._subscriber = CollectionSubscriber(broker)
        self._publisher = CollectionPublisher(broker, self._resync)
        self._last_registration = 0
        self._policy_review = PolicyReview(registry_thread.call, self.change_views, self._end)
        self.resyncs = 0
        """Number of streams that had to resync."""

    @property
    def streams(self) -> int:
        return len(self._publisher.streams_by_subscription_id)

    @property
    def events(self) -> int:
        """Number of events published to collection streams."""
        return self._publisher.events

    def receive(self, frame: Deliver | Complete | Status) -> None:
        """Process one frame of an ingest link. Frames arrive in order."""
        self._publisher.receive(frame)

    # --- subscribe ----------------------------------------------------------------------------------------------

    def subscribe(
        self, client: Client, sub_id: str, request: CollectionRequest, next_stream_id: Callable[[], int]
    ) -> None:
        """Subscribe a client. It joins an equal stream, or opens one with an id from `next_stream_id`."""
        tenant = client.tenant
        pending = PendingSubscriber(client, sub_id, request)
        known = tenant.streams.get(request.key)
        if isinstance(known, CollectionStream):
            self._broker.add_subscription(client, sub_id, known)
            if known.request.view_rules != request.view_rules:
                self.change_views(known, request.views)
            if known.state is StreamState.OPENING:
                known.awaiting_registration.append(pending)
            else:
                self._join(known, pending)
            return
        actor = None if client.system else client.actor
        stream = CollectionStream(tenant, next_stream_id(), actor, request, self._closed)
        tenant.streams[request.key] = stream
        self._broker.add_subscription(client, sub_id, stream)
        stream.awaiting_registration.append(pending)
        self._policy_review.add(stream)
        self._register(stream, request)

    def save(self) -> None:
        """Save the positions of all streams for the next server. Called on graceful shutdown."""
        for stream in self._publisher.streams_by_subscription_id.values():
            stream.save(self._publisher.published_offset(stream))

    def restore_stream(
        self,
        tenant: Tenant,
        key: bytes,
        actor: str | None,
        saved: SavedCollectionStream,
        position: int,
        stream_id: int,
    ) -> CollectionStream:
        """Continue a stream of the previous server. Raise VedetteError if its actor's views have changed."""
        request = query_from_saved(tenant, key, actor, saved)
        stream = CollectionStream(tenant, stream_id, actor, request, self._closed)
        stream.position = position
        stream.published.update(saved.places)
        stream.received.update(saved.places)
        tenant.streams[key] = stream
        self._policy_review.add(stream)
        self._register(stream, request, saved=saved)
        return stream

    def _register(
        self,
        stream: CollectionStream,
        request: CollectionRequest,
        shown: PublishedRows | None = None,
        saved: SavedCollectionStream | None = None,
    ) -> None:
        """Register a stream. `shown`: rows published before, if the stream was registered earlier."""
        self._publisher.registration_started()
        self._last_registration += 1
        ids = stream.registration_ids = tuple(
            f"{self._last_registration}.{n}" for n in range(len(request.collections))
        )

        def done(outcome: StreamRegistered | VedetteError) -> None:
            try:
                self._on_registered(stream, ids, request, shown, saved, outcome)
            finally:
                self._publisher.registration_finished()

        self._registry_thread.post(
            RegisterJob(
                registration_ids=ids, tenant=stream.tenant.name, request=request, done=done, saved=saved
            )
        )

    def _on_registered(
        self,
        stream: CollectionStream,
        ids: tuple[str, ...],
        request: CollectionRequest,
        shown: PublishedRows | None,
        saved: SavedCollectionStream | None,
        outcome: StreamRegistered | VedetteError,
    ) -> None:
        if isinstance(outcome, VedetteError):
            self._registration_failed(stream, outcome, published=shown is not None or saved is not None)
        elif stream.state is StreamState.CLOSED:
            self._registry_thread.post(UnregisterJob(registration_ids=ids))
            for pending in stream.awaiting_registration:
                self._subscriber.is_waiting(stream, pending)
        elif stream.request.views is not request.views:  # policies changed during the registration
            self._registry_thread.post(UnregisterJob(registration_ids=ids))
            if saved is not None:
                self._resync([stream], "auth")
            else:
                self._register(stream, replace(request, views=stream.request.views), shown)
        elif saved is not None:
            self._activate(stream, outcome, {}, differs=False)
        else:
            self._activate(stream, outcome, shown)

    def _registration_failed(self, stream: CollectionStream, error: VedetteError, *, published: bool) -> None:
        if published:
            self._resync([stream], "gap")
            return
        for pending in stream.awaiting_registration:
            self._subscriber.reject(stream, pending, error)

    def _activate(
        self,
        stream: CollectionStream,
        opened: StreamRegistered,
        shown: PublishedRows | None,
        *,
        differs: bool = True,
    ) -> None:
        """Finish a registration. `differs`: the visible rows may differ from `shown`."""
        stream.state = StreamState.REGISTERED
        stream.subscription_ids, stream.version, stream.start_offset = (
            opened.subscription_ids,
            opened.version,
            opened.start_offset,
        )
        stream.collections, stream.partition_epochs = opened.collections, opened.epochs
        self._publisher.add(stream, opened.states)
        waiting, stream.awaiting_registration = stream.awaiting_registration, []
        if shown is not None:
            if differs:
                self._publish_view_diff(stream, shown, opened)
        elif self._subscriber.is_waiting(stream, first := waiting.pop(0)):
            documents = opened.documents if first.request.snapshot else None
            first = first.with_views_of(stream)
            self._subscriber.acknowledge(
                stream, first, stream.history.last_seq, stream.position, opened.start_offset, documents
            )
        for pending in waiting:
            if self._subscriber.is_waiting(stream, pending):
                self._join(stream, pending)
        self._publisher.publish_early(stream)

    def _join(self, stream: CollectionStream, pending: PendingSubscriber) -> None:
        """Join a subscriber at the stream's current seq. The registry thread reads its snapshot."""
        seq, position = stream.history.last_seq, stream.position
        pending = pending.with_views_of(stream)
        if not pending.request.snapshot:
            self._subscriber.acknowledge(
                stream, pending, seq, position, self._publisher.completed_offset, None
            )
            return

        def done(outcome: SnapshotRead | VedetteError) -> None:
            stream.awaiting_snapshot.remove(pending)
            self._on_snapshot(stream, pending, seq, position, outcome)

        stream.awaiting_snapshot.append(pending)

        self._registry_thread.post(
            SnapshotJob(
                tenant=stream.tenant.name,
                collections=stream.collections,
                request=pending.request,
                after=self._publisher.published_offset(stream),
                published=dict(stream.published),
                done=done,
            )
        )

    def _on_snapshot(
        self,
        stream: CollectionStream,
        pending: PendingSubscriber,
        seq: int,
        position: int,
        outcome: SnapshotRead | VedetteError,
    ) -> None:
        if not self._subscriber.is_waiting(stream, pending):
            return
        if stream.state is StreamState.OPENING:
            stream.awaiting_registration.append(pending)
        elif pending.request.views is not stream.request.views:
            self._join(stream, pending)
        elif isinstance(outcome, VedetteError):
            self._subscriber.reject(stream, pending, outcome)
        elif not stream.history.can_replay_from(seq):
            text = "the collection changes too fast for a snapshot: subscribe again"
            self._subscriber.reject(stream, pending, InvalidStatement("E1102", text))
        else:
            self._subscriber.acknowledge(stream, pending, seq, position, outcome.offset, outcome.documents)

    def _closed(self, stream: CollectionStream) -> None:
        """Unregister a stream that has no subscribers left."""
        self._policy_review.remove(stream)
        self._unregister(stream)

    def _unregister(self, stream: CollectionStream) -> None:
        self._publisher.remove(stream)
        if stream.subscription_ids:
            self._registry_thread.post(UnregisterJob(registration_ids=stream.registration_ids))

    # --- policy changes -----------------------------------------------------------------------------------------

    def change_views(self, stream: CollectionStream, views: Mapping[str, CollectionView] | None) -> None:
        """Apply new policy views to a stream. It publishes the difference, and no other event in between."""
        previous, request = stream.request, replace(stream.request, views=views)
        if stream.state is StreamState.CLOSED:
            return
        if previous.windowed:
            self._resync([stream], "auth")  # counts of closed windows cannot be corrected
            return
        if stream.state is StreamState.OPENING:
            stream.request = request  # `_on_registered` detects the change
            return
        after, published = self._publisher.published_offset(stream), stream.published
        self._unregister(stream)
        stream.reset(request)

        def done(outcome: SnapshotRead | VedetteError) -> None:
            if isinstance(outcome, VedetteError):
                self._resync([stream], "auth")
            elif stream.state is not StreamState.CLOSED:
                shown = _rows(previous, stream.collections, outcome.documents)
                self._register(stream, replace(stream.request, snapshot=True), shown)

        self._registry_thread.post(
            SnapshotJob(
                tenant=stream.tenant.name,
                collections=stream.collections,
                request=previous,
                after=after,
                published=published,
                done=done,
            )
        )

    def _publish_view_diff(
        self, stream: CollectionStream, shown: PublishedRows, opened: StreamRegistered
    ) -> None:
        now = _rows(stream.request, opened.collections, opened.documents or {})
        for seq, suffix in stream.append_view_diff(shown, now, opened.start_offset):
            self._publisher.publish(stream, seq, suffix)

    def _unanswered_subscribers(self, stream: CollectionStream) -> list[PendingSubscriber]:
        """Return counted subscribers that have no reply yet. The gateway does not send them stream records."""
        return [
            joining
            for joining in (*stream.awaiting_registration, *stream.awaiting_snapshot)
            if self._subscriber.is_subscribed(stream, joining)
        ]

    def _end(self, stream: CollectionStream, error: VedetteError) -> None:
        """End a stream whose actor may no longer see anything."""
        stream.resumable_until = 0.0
        for pending in self._unanswered_subscribers(stream):
            self._subscriber.reject(stream, pending, error)
        payload = {"status": "ended", "reason": "cancelled", "errors": [error_payload(error)]}
        self._broker.end_streams([stream], payload)
        stream.tenant.close_stream(stream)

    # --- lost continuity ----------------------------------------------------------------------------------------

    def on_lease_lost(self) -> None:
        """Resync all streams: the lease was lost, and with it the deliveries since then."""
        self._resync(list(self._publisher.streams_by_subscription_id.values()), "gap")
        self._publisher.discard_early()

    def on_source_removed(self, source: str) -> None:
        """End all streams over the collections of a removed source."""
        error = SourceError("E6103", f"the source '{source}' was removed", fields={"source": source})
        prefix = f"{source}::"
        for stream in set(self._publisher.streams_by_subscription_id.values()):
            if any(map(_has_prefix(prefix), stream.request.collections)):
                self._end(stream, error)

    def _resync(self, streams: Iterable[CollectionStream], reason: str) -> None:
        """Close streams and send each of their subscribers one resync-required."""
        lost = {id(stream): stream for stream in streams}
        if not lost:
            return
        self.resyncs += len(lost)
        log.warning(
            "%d streams over collections must resync: %s",
            len(lost),
            reason,
            extra={"action": "collection.resync", "reason": reason},
        )
        unanswered = [joining for stream in lost.values() for joining in self._unanswered_subscribers(stream)]
        for stream in lost.values():
            stream.resumable_until = 0.0  # the stream cannot be resumed
        for client in list(self._broker.clients.values()):
            for name in [n for n, s in client.subscriptions.items() if id(s) in lost]:
                self._broker.reply(client, link.ResyncRequired(conn=client.conn, sub_id=name, reason=reason))
                self._broker.remove_subscription(client, name)
        for stream in lost.values():
            stream.tenant.close_stream(stream)
        for pending in unanswered:
            self._broker.graph_subscriber.resubscribe(*pending)


def _rows(request: CollectionRequest, collections: Mapping[str, str], documents: Documents) -> PublishedRows:
    return {
        (collection, key): request.row(collections[collection], key, document)
        for (collection, key), document in documents.items()
    }


def _has_prefix(prefix: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(prefix)
