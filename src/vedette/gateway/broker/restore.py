"""Saves replay windows at graceful shutdown and restores them at the next start, so that clients can resume.

Theory of operation. When the broker closes, every event is numbered and there are no further commits. It writes, for
each stream, how to rebuild it (text and parameters, or query), its position, and its retained events. The next broker
creates the same watches before the first commit and continues the old chains. To a resuming client, the restart looks
like a long disconnect.

If anything does not match, nothing is restored and clients must resync: the file has another version or is damaged, the
database has newer commits (another program used the directory), its log was restored from a backup, the stream has
expired, or its actor is gone. There is no file after a crash, because the last published events are then unknown.

Streams over external collections are restored later, when the pipeline can deliver to them (`restore_collections`).
They are registered at their saved position, so changes made in the meantime are delivered as after any other
interruption.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vedette.clock import Clock
from vedette.errors import VedetteError
from vedette.gateway.broker.subscribe import GraphSubscriber
from vedette.gateway.broker.window_file import (
    SavedEvent,
    SavedStream,
    SavedTenant,
    SavedWindows,
    take_windows,
    write_windows,
)
from vedette.gateway.collections.broker import CollectionBroker
from vedette.gateway.collections.queries import SavedCollectionStream
from vedette.gateway.collections.stream import CollectionStream
from vedette.gateway.streams.replay_window import StreamHistory
from vedette.gateway.streams.stream import Stream
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.streams.watch_stream import WatchStream
from vedette.gateway.wire.messages import decode_params
from vedette.values import timestamp_from_ms, timestamp_to_ms

__all__ = ["WaitingStream", "restore_collections", "restore_windows", "save_windows"]

log = logging.getLogger(__name__)
_COLLECTION = b'{"collection":'
"""Start of the spec of a collection stream."""


class WaitingStream(NamedTuple):
    """A collection stream of the previous server that is restored once the ingest server is open."""

    tenant: Tenant
    saved: SavedStream
    stopped_at: float
    """Time at which the previous server stopped, on this server's monotonic clock."""


# --- save -------------------------------------------------------------------------------------------------------


def save_windows(path: Path, tenants: Iterable[Tenant], clock: Clock) -> None:
    """Write all resumable streams. There must be no further commits."""
    now = clock.monotonic()
    saved = tuple(each for tenant in tenants if (each := _saved_tenant(tenant, now)).streams)
    if saved:
        write_windows(path, SavedWindows(at_ms=timestamp_to_ms(clock.now()), tenants=saved))


def _saved_tenant(tenant: Tenant, now: float) -> SavedTenant:
    database = tenant.database
    return SavedTenant(
        tenant=tenant.name,
        epoch=database.epoch,
        commit_sequence=database.state.sequence,
        streams=tuple(
            _saved_stream(stream.stream_key, stream.restore_spec, stream, now)
            for stream in tenant.streams.values()
            if stream.stream_key is not None
            and stream.restore_spec is not None
            and stream.resumable_until > now
        ),
    )


def _saved_stream(key: bytes, spec: bytes, stream: Stream, now: float) -> SavedStream:
    position = 0
    if isinstance(stream, WatchStream):
        position = stream.feed.position
    elif isinstance(stream, CollectionStream):
        position = stream.position
    return SavedStream(
        key=key,
        actor=stream.actor,
        spec=spec,
        claims_hash=stream.claims_hash,
        position=position,
        evicted_seq=stream.history.evicted_seq,
        last_seq=stream.history.last_seq,
        seconds_left=stream.resumable_until - now,
        events=tuple(
            SavedEvent(seq=event.seq, suffix=event.suffix, age_seconds=now - event.appended_at)
            for event in stream.history.events
        ),
    )


# --- restore ----------------------------------------------------------------------------------------------------


def restore_windows(
    path: Path,
    tenant: Callable[[str], Tenant],
    subscriptions: SubscriptionTable,
    subscriber: GraphSubscriber,
    clock: Clock,
) -> list[WaitingStream]:
    """Restore the graph streams of the previous broker, and return the collection streams that are left.

    Call before the first commit. `tenant` is called with the name of a database and opens it.
    """
    windows = take_windows(path)
    if windows is None:
        return []
    downtime_seconds = (timestamp_to_ms(clock.now()) - windows.at_ms) / 1000
    if downtime_seconds < 0:
        return []
    restored = 0
    waiting: list[WaitingStream] = []
    for saved in windows.tenants:
        opened = tenant(saved.tenant)
        if (opened.database.epoch, opened.database.state.sequence) != (saved.epoch, saved.commit_sequence):
            continue
        stopped_at = clock.monotonic() - downtime_seconds
        streams = [each for each in saved.streams if not each.spec.startswith(_COLLECTION)]
        restored += _restore_tenant(opened, streams, stopped_at, subscriptions, subscriber)
        waiting += [
            WaitingStream(opened, each, stopped_at)
            for each in saved.streams
            if each.spec.startswith(_COLLECTION)
        ]
    if restored:
        log.info("Restored %d streams", restored, extra={"action": "window.restored"})
    return waiting


def _restore_tenant(
    tenant: Tenant,
    saved_streams: Sequence[SavedStream],
    stopped_at: float,
    subscriptions: SubscriptionTable,
    subscriber: GraphSubscriber,
) -> int:
    """Restore the graph streams of one database and return their number."""
    commit_sequence = tenant.database.state.sequence
    now = tenant.clock.monotonic()
    restored: list[tuple[Stream, SavedStream]] = []
    for saved in sorted(saved_streams, key=lambda each: each.seconds_left):
        if stopped_at + saved.seconds_left <= now:
            continue
        try:
            stream = _restore_stream(tenant, saved, subscriber)
        except VedetteError as error:  # the actor, the type or the permission no longer exists
            _log_not_restored(tenant, saved, error)
            continue
        if stream.stream_key == saved.key:
            restored.append((stream, saved))
        else:
            subscriptions.close_stream(tenant, stream)
    if tenant.database.state.sequence != commit_sequence:  # a commit may be missing from some streams
        for stream, _ in restored:
            subscriptions.close_stream(tenant, stream)
        return 0
    _continue_streams(tenant, restored, stopped_at, subscriptions)
    return len(restored)


def _restore_stream(tenant: Tenant, saved: SavedStream, subscriber: GraphSubscriber) -> Stream:
    """Rebuild a stream over the graph. Its key differs from the saved one if its meaning has changed."""
    spec: dict[str, Any] = msgspec.json.decode(saved.spec)
    if "watch" in spec:
        params = decode_params(spec["params"])
        stream = subscriber.open_watch_stream(tenant, saved.actor, spec["watch"], params, spec["params"])
        stream.feed.take()
        stream.feed.set_position(saved.position)
        stream.feed.listen(stream.mark_ready)
        return stream
    moment = timestamp_from_ms(spec["time_ms"])
    return subscriber.open_filter_stream(
        tenant, saved.actor, spec["query"], spec["auth"], moment, include_data=spec["include_data"]
    )


def restore_collections(
    waiting: Iterable[WaitingStream], collections: CollectionBroker, subscriptions: SubscriptionTable
) -> None:
    """Restore the collection streams. Call before the first client connects."""
    restored: dict[tuple[Tenant, float], list[tuple[Stream, SavedStream]]] = {}
    for tenant, saved, stopped_at in waiting:
        if stopped_at + saved.seconds_left <= tenant.clock.monotonic():
            continue
        state = msgspec.json.decode(saved.spec, type=dict[str, SavedCollectionStream])["collection"]
        try:
            stream = collections.restore_stream(tenant, saved.key, saved.actor, state, saved.position)
        except VedetteError as error:  # the actor is gone, or its views have changed
            _log_not_restored(tenant, saved, error)
            continue
        restored.setdefault((tenant, stopped_at), []).append((stream, saved))
    for (tenant, stopped_at), streams in restored.items():
        _continue_streams(tenant, streams, stopped_at, subscriptions)
    count = sum(map(len, restored.values()))
    if count:
        log.info("Restored %d streams over collections", count, extra={"action": "window.restored"})


def _continue_streams(
    tenant: Tenant,
    restored: Sequence[tuple[Stream, SavedStream]],
    stopped_at: float,
    subscriptions: SubscriptionTable,
) -> None:
    """Add the saved events of all streams to the window, oldest first, and keep the streams for their clients."""
    for stream, saved in restored:
        stream.claims_hash = saved.claims_hash
        stream.resumable_until = stream.kept_until = stopped_at + saved.seconds_left
        stream.history = StreamHistory(evicted_seq=saved.evicted_seq, last_seq=saved.evicted_seq)
    events = [(event, stream) for stream, saved in restored for event in saved.events]
    for event, stream in sorted(events, key=lambda each: each[0].seq):
        appended_at = stopped_at - event.age_seconds
        tenant.event_log.window.add(stream.history, event.seq, event.suffix, appended_at)
    for stream, saved in restored:
        stream.history.last_seq = saved.last_seq
        subscriptions.keep_idle(tenant, stream)


def _log_not_restored(tenant: Tenant, saved: SavedStream, error: VedetteError) -> None:
    extra = {"action": "window.not_restored", "tenant": tenant.name, "actor": saved.actor}
    log.info("A stream cannot be restored: %s", error, extra=extra)
