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
    def __init__(self, broker: Broker, registrar: RegistryThread) -> None:
        self._broker = broker
        self._registrar = registrar
        self._reception = CollectionSubscriber(broker)
        self._telling = CollectionPublisher(broker, self._resync)
        self._last_id = 0
        self._rights = PolicyReview(registrar.call, self.change_views, self._end)
        self.resyncs = 0
        """Number of streams that had to resync."""

    @property
    def streams(self) -> int:
        return len(self._telling.streams_by_subscription_id)

    @property
    def events(self) -> int:
        """Number of events published to collection streams."""
        return self._telling.events

    def take(self, frame: Deliver | Complete | Status) -> None:
        """Process one frame of an ingest link. Frames arrive in order."""
        self._telling.take(frame)

    # --- subscribe ----------------------------------------------------------------------------------------------

    def subscribe(
        self, client: Client, sub: str, wanted: CollectionRequest, number: Callable[[], int]
    ) -> None:
        """Subscribe a client, joining an equal stream if there is one. `number` returns the id for a new stream."""
        desk = client.desk
        joining = PendingSubscriber(client, sub, wanted)
        known = desk.streams.get(wanted.key)
        if isinstance(known, CollectionStream):
            self._broker.add_subscription(client, sub, known)
            if known.wanted.view_rules != wanted.view_rules:
                self.change_views(known, wanted.views)
            if known.state is StreamState.OPENING:
                known.awaiting_registration.append(joining)
            else:
                self._join(known, joining)
            return
        actor = None if client.system else client.actor
        stream = CollectionStream(desk, number(), actor, wanted, self._closed)
        desk.streams[wanted.key] = stream
        self._broker.add_subscription(client, sub, stream)
        stream.awaiting_registration.append(joining)
        self._rights.add(stream)
        self._register(stream, wanted)

    def save(self) -> None:
        """Save the positions of all streams for the next server. Called on graceful shutdown."""
        for stream in self._telling.streams_by_subscription_id.values():
            stream.save(self._telling.published_offset(stream))

    def restore_stream(
        self,
        desk: Tenant,
        key: bytes,
        actor: str | None,
        left: SavedCollectionStream,
        position: int,
        number: int,
    ) -> CollectionStream:
        """Continue a stream of the previous server. Raise VedetteError if its actor's views have changed."""
        wanted = query_from_saved(desk, key, actor, left)
        stream = CollectionStream(desk, number, actor, wanted, self._closed)
        stream.position = position
        stream.published.update(left.places)
        stream.received.update(left.places)
        desk.streams[key] = stream
        self._rights.add(stream)
        self._register(stream, wanted, left=left)
        return stream

    def _register(
        self,
        stream: CollectionStream,
        wanted: CollectionRequest,
        shown: PublishedRows | None = None,
        left: SavedCollectionStream | None = None,
    ) -> None:
        """Register a stream. `shown`: rows published before, if the stream was registered earlier."""
        self._telling.registration_started()
        self._last_id += 1
        ids = stream.registration_ids = tuple(f"{self._last_id}.{n}" for n in range(len(wanted.collections)))

        def done(outcome: StreamRegistered | VedetteError) -> None:
            try:
                self._on_registered(stream, ids, wanted, shown, left, outcome)
            finally:
                self._telling.registration_finished()

        self._registrar.post(
            RegisterJob(registration_ids=ids, tenant=stream.desk.tenant, wanted=wanted, done=done, left=left)
        )

    def _on_registered(
        self,
        stream: CollectionStream,
        ids: tuple[str, ...],
        wanted: CollectionRequest,
        shown: PublishedRows | None,
        left: SavedCollectionStream | None,
        outcome: StreamRegistered | VedetteError,
    ) -> None:
        if isinstance(outcome, VedetteError):
            self._not_opened(stream, outcome, begun=shown is not None or left is not None)
        elif stream.state is StreamState.CLOSED:
            self._registrar.post(UnregisterJob(registration_ids=ids))
            for joining in stream.awaiting_registration:
                self._reception.is_waiting(stream, joining)
        elif stream.wanted.views is not wanted.views:  # policies changed during the registration
            self._registrar.post(UnregisterJob(registration_ids=ids))
            if left is not None:
                self._resync([stream], "auth")
            else:
                self._register(stream, replace(wanted, views=stream.wanted.views), shown)
        elif left is not None:
            self._activate(stream, outcome, {}, differs=False)
        else:
            self._activate(stream, outcome, shown)

    def _not_opened(self, stream: CollectionStream, error: VedetteError, *, begun: bool) -> None:
        if begun:
            self._resync([stream], "gap")
            return
        for joining in stream.awaiting_registration:
            self._reception.refuse(stream, joining, error)

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
            opened.numbers,
            opened.version,
            opened.start_offset,
        )
        stream.collections, stream.partition_epochs = opened.collections, opened.epochs
        self._telling.add(stream, opened.states)
        waiting, stream.awaiting_registration = stream.awaiting_registration, []
        if shown is not None:
            if differs:
                self._tell_difference(stream, shown, opened)
        elif self._reception.is_waiting(stream, first := waiting.pop(0)):
            documents = opened.documents if first.wanted.snapshot else None
            first = first.with_views_of(stream)
            self._reception.acknowledge(
                stream, first, stream.history.last_seq, stream.position, opened.start_offset, documents
            )
        for joining in waiting:
            if self._reception.is_waiting(stream, joining):
                self._join(stream, joining)
        self._telling.publish_early(stream)

    def _join(self, stream: CollectionStream, joining: PendingSubscriber) -> None:
        """Join a subscriber at the stream's current seq. The registry thread reads its snapshot."""
        seq, position = stream.history.last_seq, stream.position
        joining = joining.with_views_of(stream)
        if not joining.wanted.snapshot:
            self._reception.acknowledge(stream, joining, seq, position, self._telling.completed_offset, None)
            return

        def done(outcome: SnapshotRead | VedetteError) -> None:
            stream.awaiting_snapshot.remove(joining)
            self._on_snapshot(stream, joining, seq, position, outcome)

        stream.awaiting_snapshot.append(joining)

        self._registrar.post(
            SnapshotJob(
                tenant=stream.desk.tenant,
                collections=stream.collections,
                wanted=joining.wanted,
                after=self._telling.published_offset(stream),
                told=dict(stream.published),
                done=done,
            )
        )

    def _on_snapshot(
        self,
        stream: CollectionStream,
        joining: PendingSubscriber,
        seq: int,
        position: int,
        outcome: SnapshotRead | VedetteError,
    ) -> None:
        if not self._reception.is_waiting(stream, joining):
            return
        if stream.state is StreamState.OPENING:
            stream.awaiting_registration.append(joining)
        elif joining.wanted.views is not stream.wanted.views:
            self._join(stream, joining)
        elif isinstance(outcome, VedetteError):
            self._reception.refuse(stream, joining, outcome)
        elif not stream.history.can_replay_from(seq):
            text = "the collection changes too fast for a snapshot: subscribe again"
            self._reception.refuse(stream, joining, InvalidStatement("E1102", text))
        else:
            self._reception.acknowledge(stream, joining, seq, position, outcome.offset, outcome.documents)

    def _closed(self, stream: CollectionStream) -> None:
        """Unregister a stream that has no subscribers left."""
        self._rights.remove(stream)
        self._unregister(stream)

    def _unregister(self, stream: CollectionStream) -> None:
        self._telling.remove(stream)
        if stream.subscription_ids:
            self._registrar.post(UnregisterJob(registration_ids=stream.registration_ids))

    # --- policy changes -----------------------------------------------------------------------------------------

    def change_views(self, stream: CollectionStream, eyes: Mapping[str, CollectionView] | None) -> None:
        """Apply new policy views to a stream. It publishes the difference, and no other event in between."""
        former, wanted = stream.wanted, replace(stream.wanted, views=eyes)
        if stream.state is StreamState.CLOSED:
            return
        if former.windowed:
            self._resync([stream], "auth")  # counts of closed windows cannot be corrected
            return
        if stream.state is StreamState.OPENING:
            stream.wanted = wanted  # `_on_registered` detects the change
            return
        after, places = self._telling.published_offset(stream), stream.published
        self._unregister(stream)
        stream.reset(wanted)

        def done(outcome: SnapshotRead | VedetteError) -> None:
            if isinstance(outcome, VedetteError):
                self._resync([stream], "auth")
            elif stream.state is not StreamState.CLOSED:
                shown = _rows(former, stream.collections, outcome.documents)
                self._register(stream, replace(stream.wanted, snapshot=True), shown)

        self._registrar.post(
            SnapshotJob(
                tenant=stream.desk.tenant,
                collections=stream.collections,
                wanted=former,
                after=after,
                told=places,
                done=done,
            )
        )

    def _tell_difference(
        self, stream: CollectionStream, shown: PublishedRows, opened: StreamRegistered
    ) -> None:
        now = _rows(stream.wanted, opened.collections, opened.documents or {})
        for seq, tail in stream.append_view_diff(shown, now, opened.start_offset):
            self._telling.say(stream, seq, tail)

    def _unanswered_subscribers(self, stream: CollectionStream) -> list[PendingSubscriber]:
        """Return counted subscribers that have no reply yet. The gateway does not send them stream records."""
        return [
            joining
            for joining in (*stream.awaiting_registration, *stream.awaiting_snapshot)
            if self._reception.is_there(stream, joining)
        ]

    def _end(self, stream: CollectionStream, error: VedetteError) -> None:
        """End a stream whose actor may no longer see anything."""
        stream.resumable_until = 0.0
        for joining in self._unanswered_subscribers(stream):
            self._reception.refuse(stream, joining, error)
        payload = {"status": "ended", "reason": "cancelled", "errors": [error_payload(error)]}
        self._broker.end_streams([stream], payload)
        stream.desk.close_stream(stream)

    # --- lost continuity ----------------------------------------------------------------------------------------

    def on_lease_lost(self) -> None:
        """Resync all streams: the lease was lost, and with it the deliveries since then."""
        self._resync(list(self._telling.streams_by_subscription_id.values()), "gap")
        self._telling.forget_early()

    def source_removed(self, source: str) -> None:
        """End all streams over the collections of a removed source."""
        error = SourceError("E6103", f"the source '{source}' was removed", fields={"source": source})
        front = f"{source}::"
        for stream in set(self._telling.streams_by_subscription_id.values()):
            if any(map(_begins(front), stream.wanted.collections)):
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
                self._broker.reply(client, link.ResyncRequired(conn=client.conn, sub=name, reason=reason))
                self._broker.remove_subscription(client, name)
        for stream in lost.values():
            stream.desk.close_stream(stream)
        for joining in unanswered:
            self._broker.subscribing.subscribe_anew(*joining)


def _rows(wanted: CollectionRequest, collections: Mapping[str, str], documents: Documents) -> PublishedRows:
    return {
        (collection, key): wanted.row(collections[collection], key, document)
        for (collection, key), document in documents.items()
    }


def _begins(front: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(front)
