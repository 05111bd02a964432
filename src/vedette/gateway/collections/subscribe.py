"""Subscribes clients to external collections: registers streams, reads snapshots, and answers. Engine thread only.

Theory of operation. A collection stream is one subscription at the registry. The snapshot of its first subscriber is
read at a journal offset, and the stream is registered with that start offset: the pipeline delivers every later change.
A later subscriber joins at the stream's current seq. Its snapshot contains exactly what the stream has published up to
that seq (`snapshot.py`); events published while the snapshot is read are replayed from the window, as in a resume. So
each subscriber gets one chain of events without gaps or duplicates, and each event is encoded once.

The registry thread does all I/O. Each job has an id, `_pending` holds what the job is for, and `on_result` continues
when its result arrives. In the meantime the subscriber may have left, the stream may have closed, or policies may have
changed; each handler checks for this first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import NamedTuple, TypeAlias

from vedette.errors import InvalidStatement, PolicyError, VedetteError
from vedette.gateway.collections.publish import CollectionPublisher, Outcome, Published, ResyncStreams
from vedette.gateway.collections.queries import (
    CollectionRequest,
    CollectionView,
    SavedCollectionStream,
    query_from_saved,
)
from vedette.gateway.collections.registry_thread import (
    JobFailed,
    RegisterJob,
    RegistryThread,
    SnapshotJob,
    SnapshotRead,
    StreamRegistered,
    UnregisterJob,
)
from vedette.gateway.collections.snapshot import Documents
from vedette.gateway.collections.stream import (
    CollectionStream,
    PendingSubscriber,
    PublishedRows,
    StreamState,
)
from vedette.gateway.collections.views import PolicyReview, current_views
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.pump import StreamPump
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import encode, error_payload
from vedette.gateway.wire.replies import (
    SMALLER_INITIAL_ADVICE,
    snapshot_message,
    subscribe_ack,
    too_large,
)

__all__ = ["CollectionSubscriber"]


class _Registration(NamedTuple):
    """A stream that waits for its registration."""

    stream: CollectionStream
    request: CollectionRequest
    shown: PublishedRows | None
    """Rows published before, if the stream was registered earlier."""
    saved: SavedCollectionStream | None
    """Saved state, if the stream is restored from an earlier server."""


class _Snapshot(NamedTuple):
    """A subscriber that waits for its snapshot. It joins the stream at `seq` and `position`."""

    stream: CollectionStream
    subscriber: PendingSubscriber
    seq: int
    position: int


class _ViewChange(NamedTuple):
    """A stream whose views changed; the rows that it has published are being read."""

    stream: CollectionStream
    previous: CollectionRequest


_Pending: TypeAlias = _Registration | _Snapshot | _ViewChange


class CollectionSubscriber:
    """Opens, joins and re-registers collection streams."""

    def __init__(
        self,
        send_queue: SendQueue,
        subscriptions: SubscriptionTable,
        pump: StreamPump,
        publisher: CollectionPublisher,
        registry_thread: RegistryThread,
        policy_review: PolicyReview,
        *,
        limits: GatewayLimits,
    ) -> None:
        self._send_queue, self._subscriptions, self._pump = send_queue, subscriptions, pump
        self._publisher, self._registry_thread = publisher, registry_thread
        self._policy_review, self._limits = policy_review, limits
        self._job_ids = count(1)
        self._pending: dict[int, _Pending] = {}
        """Job id ▸ what its result is for."""

    # --- streams ------------------------------------------------------------------------------------------------

    def subscribe(self, client: Client, sub_id: str, request: CollectionRequest) -> list[ResyncStreams]:
        """Subscribe a client: join an equal stream, or open one. The reply follows when the registry thread is done."""
        tenant = client.tenant
        subscriber = PendingSubscriber(client, sub_id, request)
        known = tenant.streams.get(request.key)
        if not isinstance(known, CollectionStream):
            stream = self._open_stream(tenant, client.effective_actor, request)
            self._subscriptions.add(client, sub_id, stream)
            stream.awaiting_registration.append(subscriber)
            self._register(stream, request)
            return []
        self._subscriptions.add(client, sub_id, known)
        lost: list[ResyncStreams] = []
        if known.request.view_rules != request.view_rules:
            lost = self.change_views(known, request.views)
        if known.state is StreamState.OPENING:
            known.awaiting_registration.append(subscriber)
        elif not lost:
            self._join(known, subscriber)
        return lost

    def restore_stream(
        self, tenant: Tenant, key: bytes, actor: str | None, saved: SavedCollectionStream, position: int
    ) -> CollectionStream:
        """Continue a stream of the previous server. Raise E7001 if its actor's views have changed."""
        request = current_views(actor, tenant.database, query_from_saved(key, saved))
        if request.view_rules != saved.view_rules:
            raise PolicyError("E7001", "Permission denied")
        stream = self._open_stream(tenant, actor, request)
        stream.position = position
        stream.published.update(saved.positions)
        stream.received.update(saved.positions)
        self._register(stream, request, saved=saved)
        return stream

    def _open_stream(self, tenant: Tenant, actor: str | None, request: CollectionRequest) -> CollectionStream:
        stream_id = self._subscriptions.new_stream_id()
        stream = CollectionStream(tenant, stream_id, actor, request, self._on_closed)
        tenant.streams[request.key] = stream
        self._policy_review.add(stream)
        return stream

    def _on_closed(self, stream: CollectionStream) -> None:
        self._policy_review.remove(stream)
        self._unregister(stream)

    def _unregister(self, stream: CollectionStream) -> None:
        self._publisher.remove(stream)
        if stream.subscription_ids:
            self._registry_thread.post(UnregisterJob(registration_ids=stream.registration_ids))

    def change_views(
        self, stream: CollectionStream, views: Mapping[str, CollectionView] | None
    ) -> list[ResyncStreams]:
        """Apply new policy views to a stream. It publishes the difference, and no other event in between.

        The rows that the stream has published are read first. Then the stream is registered again, with a snapshot,
        and the difference between both sets of rows is published.
        """
        previous, request = stream.request, replace(stream.request, views=views)
        if stream.state is StreamState.CLOSED:
            return []
        if previous.windowed:  # counts of closed windows cannot be corrected
            return [ResyncStreams((stream,), "auth")]
        if stream.state is StreamState.OPENING:
            stream.request = request  # `_on_registered` detects the change
            return []
        after, published = self._publisher.published_offset(stream), stream.published
        self._unregister(stream)
        stream.reset(request)
        self._read_snapshot(_ViewChange(stream, previous), stream, previous, after, published)
        return []

    def unanswered_subscribers(self, stream: CollectionStream) -> list[PendingSubscriber]:
        """Return counted subscribers that have no reply yet. The gateway does not send them stream records."""
        return [
            subscriber
            for subscriber in (*stream.awaiting_registration, *stream.awaiting_snapshot)
            if self._subscriptions.is_subscribed(subscriber.client, subscriber.sub_id, stream)
        ]

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _register(
        self,
        stream: CollectionStream,
        request: CollectionRequest,
        shown: PublishedRows | None = None,
        saved: SavedCollectionStream | None = None,
    ) -> None:
        self._publisher.registration_started()
        job_id = next(self._job_ids)
        self._pending[job_id] = _Registration(stream, request, shown, saved)
        ids = tuple(f"{job_id}.{number}" for number in range(len(request.collections)))
        stream.registration_ids = ids
        self._registry_thread.post(
            RegisterJob(
                job_id=job_id, registration_ids=ids, tenant=stream.tenant.name, request=request, saved=saved
            )
        )

    def _read_snapshot(
        self,
        pending: _Snapshot | _ViewChange,
        stream: CollectionStream,
        request: CollectionRequest,
        after: int,
        published: Mapping[int, tuple[int, int]],
    ) -> None:
        job_id = next(self._job_ids)
        self._pending[job_id] = pending
        self._registry_thread.post(
            SnapshotJob(
                job_id=job_id,
                tenant=stream.tenant.name,
                collections=stream.collections,
                request=request,
                after=after,
                published=published,
            )
        )

    def on_result(self, result: StreamRegistered | SnapshotRead | JobFailed) -> list[ResyncStreams]:
        """Continue with the result of a job. Return the streams that may have missed changes and must resync."""
        match self._pending.pop(result.job_id), result:
            case _Registration() as pending, StreamRegistered() | JobFailed():
                try:
                    return self._on_registered(pending, result)
                finally:
                    self._publisher.registration_finished()
            case _Snapshot() as pending, SnapshotRead() | JobFailed():
                self._on_snapshot(pending, result)
                return []
            case _ViewChange() as pending, SnapshotRead() | JobFailed():
                return self._on_published_rows(pending, result)
        raise TypeError(f"{type(result).__name__} is not the result of its job")

    def _on_registered(
        self, pending: _Registration, result: StreamRegistered | JobFailed
    ) -> list[ResyncStreams]:
        stream, request, shown, saved = pending
        if isinstance(result, JobFailed):
            if shown is not None or saved is not None:  # events were published before
                return [ResyncStreams((stream,), "gap")]
            for subscriber in stream.awaiting_registration:
                self.reject(stream, subscriber, result.error)
        elif stream.state is StreamState.CLOSED:
            self._registry_thread.post(UnregisterJob(registration_ids=result.registration_ids))
            for subscriber in stream.awaiting_registration:
                self._is_waiting(stream, subscriber)
        elif stream.request.views is not request.views:  # policies changed during the registration
            self._registry_thread.post(UnregisterJob(registration_ids=result.registration_ids))
            if saved is not None:
                return [ResyncStreams((stream,), "auth")]
            self._register(stream, replace(request, views=stream.request.views), shown)
        else:
            return self._activate(stream, result, shown, is_restored=saved is not None)
        return []

    def _activate(
        self,
        stream: CollectionStream,
        result: StreamRegistered,
        shown: PublishedRows | None,
        *,
        is_restored: bool,
    ) -> list[ResyncStreams]:
        """Finish a registration: publish what changed since, and answer the subscribers that wait for it."""
        stream.state = StreamState.REGISTERED
        stream.subscription_ids, stream.version = result.subscription_ids, result.version
        stream.start_offset, stream.collections = result.start_offset, result.collections
        stream.partition_epochs = result.epochs
        self._publisher.add(stream, result.states)
        waiting, stream.awaiting_registration = stream.awaiting_registration, []
        if shown is not None:
            visible = _rows(stream.request, result.collections, result.documents or {})
            self._publish(self._publisher.publish_view_diff(stream, shown, visible))
        elif not is_restored and self._is_waiting(stream, first := waiting.pop(0)):
            documents = result.documents if first.request.snapshot else None
            first = first.with_views_of(stream)
            self._acknowledge(
                stream, first, stream.history.last_seq, stream.position, result.start_offset, documents
            )
        for subscriber in waiting:
            if self._is_waiting(stream, subscriber):
                self._join(stream, subscriber)
        return self._publish(self._publisher.publish_early(stream))

    def _publish(self, outcomes: list[Outcome]) -> list[ResyncStreams]:
        """Queue the published events. Return the streams that lost continuity."""
        lost: list[ResyncStreams] = []
        for outcome in outcomes:
            if isinstance(outcome, Published):
                self._pump.publish(outcome.stream, outcome.event)
            else:
                lost.append(outcome)
        return lost

    def _join(self, stream: CollectionStream, subscriber: PendingSubscriber) -> None:
        """Join a subscriber at the stream's current seq. The registry thread reads its snapshot."""
        seq, position = stream.history.last_seq, stream.position
        subscriber = subscriber.with_views_of(stream)
        if not subscriber.request.snapshot:
            self._acknowledge(stream, subscriber, seq, position, self._publisher.completed_offset, None)
            return
        stream.awaiting_snapshot.append(subscriber)
        pending = _Snapshot(stream, subscriber, seq, position)
        after = self._publisher.published_offset(stream)
        self._read_snapshot(pending, stream, subscriber.request, after, dict(stream.published))

    def _on_snapshot(self, pending: _Snapshot, result: SnapshotRead | JobFailed) -> None:
        stream, subscriber, seq, position = pending
        stream.awaiting_snapshot.remove(subscriber)
        if not self._is_waiting(stream, subscriber):
            return
        if stream.state is StreamState.OPENING:
            stream.awaiting_registration.append(subscriber)
        elif subscriber.request.views is not stream.request.views:
            self._join(stream, subscriber)
        elif isinstance(result, JobFailed):
            self.reject(stream, subscriber, result.error)
        elif not stream.history.can_replay_from(seq):
            text = "the collection changes too fast for a snapshot: subscribe again"
            self.reject(stream, subscriber, InvalidStatement("E1102", text))
        else:
            self._acknowledge(stream, subscriber, seq, position, result.offset, result.documents)

    def _on_published_rows(
        self, pending: _ViewChange, result: SnapshotRead | JobFailed
    ) -> list[ResyncStreams]:
        stream, previous = pending
        if isinstance(result, JobFailed):
            return [ResyncStreams((stream,), "auth")]
        if stream.state is not StreamState.CLOSED:
            shown = _rows(previous, stream.collections, result.documents)
            self._register(stream, replace(stream.request, snapshot=True), shown)
        return []

    # --- replies ------------------------------------------------------------------------------------------------

    def _is_waiting(self, stream: CollectionStream, subscriber: PendingSubscriber) -> bool:
        """Return True if the subscriber still waits for this stream. If its connection is open but the subscription was
        replaced or removed, send an empty reply, which closes the pending request.
        """
        client = subscriber.client
        subscribed = self._subscriptions.is_subscribed(client, subscriber.sub_id, stream)
        if not subscribed and self._subscriptions.is_connected(client):
            self._send_queue.reply(client, link.Reply(conn=client.conn, data=b""))
        return subscribed

    def reject(self, stream: CollectionStream, subscriber: PendingSubscriber, error: VedetteError) -> None:
        """Answer a subscription request with an error."""
        if not self._is_waiting(stream, subscriber):
            return
        client, sub_id = subscriber.client, subscriber.sub_id
        self._subscriptions.remove(client, sub_id)
        payload = error_payload(error)
        payload["message"] = f"Subscribe failed: {payload['message']}"
        self._send_queue.fail(client, sub_id, payload)

    def _acknowledge(
        self,
        stream: CollectionStream,
        subscriber: PendingSubscriber,
        seq: int,
        position: int,
        offset: int,
        documents: Documents | None,
    ) -> None:
        """Start the subscriber's chain at `seq` and replay the events published since. `documents`: its snapshot."""
        client, sub_id, _ = subscriber
        event_log = stream.event_log
        token = event_log.sign_token(subscriber.request.key, seq, snapshot_pending=documents is not None)
        messages = [subscribe_ack(sub_id, seq, token, host="pipeline")]
        if documents is not None:
            messages.append(_snapshot(stream, subscriber, seq, position, offset, documents))
            if len(messages[-1]) > self._limits.max_answer_bytes:
                self._subscriptions.remove(client, sub_id)
                failure = too_large(
                    "The initial event of the watch", self._limits.max_answer_bytes, SMALLER_INITIAL_ADVICE
                )
                self._send_queue.fail(client, sub_id, {"code": failure.code, "message": failure.text})
                return
        replay_follows = stream.history.last_seq > seq
        record = link.Subscribed(
            conn=client.conn,
            sub_id=sub_id,
            stream=stream.stream_id,
            seq=seq,
            messages=messages,
            event_prefix=event_log.event_prefix,
            replay_follows=replay_follows,
        )
        self._send_queue.reply(client, record, sub_id)
        if replay_follows:
            self._send_queue.replay(client, sub_id, stream, seq)


def _snapshot(
    stream: CollectionStream,
    subscriber: PendingSubscriber,
    seq: int,
    position: int,
    offset: int,
    documents: Documents,
) -> bytes:
    """Encode a snapshot: the `initial` event of a watch, or a page of a filter's documents."""
    _, sub_id, request = subscriber
    rows = [
        request.row(stream.collections[collection], key, document)
        for (collection, key), document in sorted(documents.items())
    ]
    if request.watch is not None:
        prefix = stream.event_log.event_prefix + encode(sub_id)
        return prefix + stream.encode_initial(rows, seq, offset, position)
    assert request.query is not None
    token = stream.event_log.sign_token(request.key, seq)
    return snapshot_message(sub_id, request.query, rows, seq=seq, tick=offset, token=token)


def _rows(request: CollectionRequest, collections: Mapping[str, str], documents: Documents) -> PublishedRows:
    return {
        (collection, key): request.row(collections[collection], key, document)
        for (collection, key), document in documents.items()
    }
