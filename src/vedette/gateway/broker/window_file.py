"""Stores replay windows at graceful shutdown and restores them at the next start, so that clients can resume.

Theory of operation. When the broker closes, every event is numbered and there are no further commits. It writes, for
each stream, how to rebuild it (text and parameters, or query), its position, and its retained events. The next broker
creates the same watches before the first commit and continues the old chains. To a resuming client, the restart looks
like a long disconnect.

If anything does not match, nothing is restored and clients must resync: the file has another version or is damaged, the
database has newer commits (another program used the directory), its log was restored from a backup, the stream has
expired, or its actor is gone. The file is deleted when it is read, so that a later crash does not leave a stale one.
There is no file after a crash, because the last published events are then unknown.

Streams over external collections are restored when the pipeline can deliver to them (`restore_collections`). They are
registered at their saved position, so changes made in the meantime are delivered as after any other interruption.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.errors import VedetteError
from vedette.gateway.collections.stream import CollectionStream, SavedCollectionStream
from vedette.gateway.streams.replay_window import StreamHistory
from vedette.gateway.streams.stream import Stream, WatchStream
from vedette.gateway.wire.messages import decode_params
from vedette.values import timestamp_from_ms, timestamp_to_ms

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Broker
    from vedette.gateway.streams.tenant import Tenant

__all__ = ["FILE", "SavedStream", "restore_collections", "restore_windows", "save_windows"]

log = logging.getLogger(__name__)
FILE = "gateway.window"
VERSION = 1
_COLLECTION = b'{"collection":'
"""Start of the restore spec of a collection stream."""


class SavedStream(msgspec.Struct, array_like=True, kw_only=True):
    key: bytes
    actor: str | None
    recipe: bytes
    """JSON from which the stream is rebuilt."""
    bound_to: bytes | None
    position: int
    """Position of the watch's last event."""
    lost_until: int
    last_seq: int
    seconds_left: float
    """Seconds for which the stream could still be resumed."""
    events: list[tuple[int, bytes, float]]
    """Seq, encoded suffix and age in seconds of each event."""


class SavedTenant(msgspec.Struct, array_like=True, kw_only=True):
    tenant: str
    epoch: int
    sequence: int
    """Sequence number of the last commit. A different number at the restart means that commits were missed."""
    streams: list[SavedStream]


class SavedWindows(msgspec.Struct, array_like=True, kw_only=True):
    version: int
    at_ms: int
    tenants: list[SavedTenant]


def save_windows(path: Path, tenants: Iterable[Tenant], now: float) -> None:
    """Write all resumable streams. There must be no further commits. `now`: monotonic time."""
    saved = [_saved_tenant(tenant, now) for tenant in tenants]
    kept = [tenant for tenant in saved if tenant.streams]
    if not kept:
        return
    clock = next(iter(tenants)).clock
    windows = SavedWindows(version=VERSION, at_ms=timestamp_to_ms(clock.now()), tenants=kept)
    fresh = path.with_suffix(".new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.msgpack.encode(windows))
        fresh.replace(path)
    except OSError as error:
        extra = {"action": "window.not_kept", "path": str(path)}
        log.warning("The replay windows cannot be saved: %s", error, extra=extra)


def _saved_tenant(tenant: Tenant, now: float) -> SavedTenant:
    database = tenant.database
    streams = [_saved_stream(stream, now) for stream in tenant.streams.values() if _is_resumable(stream, now)]
    return SavedTenant(
        tenant=tenant.name, epoch=database.epoch, sequence=database.state.sequence, streams=streams
    )


def _is_resumable(stream: Stream, now: float) -> bool:
    return stream.restore_spec is not None and stream.resumable_until > now


def _saved_stream(stream: Stream, now: float) -> SavedStream:
    assert stream.stream_key is not None
    assert stream.restore_spec is not None
    return SavedStream(
        key=stream.stream_key,
        actor=stream.actor,
        recipe=stream.restore_spec,
        bound_to=stream.claims_hash,
        position=_position(stream),
        lost_until=stream.history.evicted_seq,
        last_seq=stream.history.last_seq,
        seconds_left=stream.resumable_until - now,
        events=[(event.seq, event.suffix, now - event.appended_at) for event in stream.history.events],
    )


def _position(stream: Stream) -> int:
    if isinstance(stream, WatchStream):
        return stream.feed.position
    return stream.position if isinstance(stream, CollectionStream) else 0


def restore_windows(path: Path, broker: Broker) -> int:
    """Restore the graph streams of the previous broker and return their number. Call before the first commit."""
    try:
        data = path.read_bytes()
        path.unlink()
    except FileNotFoundError:
        return 0
    try:
        windows = msgspec.msgpack.decode(data, type=SavedWindows)
    except msgspec.MsgspecError:
        extra = {"action": "window.damaged", "path": str(path)}
        log.warning("%s is damaged; clients cannot resume and subscribe again", path, extra=extra)
        return 0
    downtime_seconds = (timestamp_to_ms(broker.clock.now()) - windows.at_ms) / 1000
    if windows.version != VERSION or downtime_seconds < 0:
        return 0
    return sum(_restore_tenant(broker, saved, downtime_seconds) for saved in windows.tenants)


def _restore_tenant(broker: Broker, saved: SavedTenant, downtime_seconds: float) -> int:
    tenant = broker.tenant(saved.tenant)
    if (tenant.database.epoch, tenant.database.state.sequence) != (saved.epoch, saved.sequence):
        return 0
    now = broker.clock.monotonic()
    restored: list[tuple[Stream, SavedStream]] = []
    for each in sorted(saved.streams, key=lambda s: s.seconds_left):
        if each.recipe.startswith(_COLLECTION):
            broker.saved_collection_streams.append((tenant, each, now - downtime_seconds))
            continue
        if each.seconds_left <= downtime_seconds:
            continue
        try:
            stream = _restore_stream(broker, tenant, each)
        except VedetteError as error:  # the actor, the type or the permission no longer exists
            extra = {"action": "window.not_restored", "tenant": tenant.name, "actor": each.actor}
            log.info("A stream cannot be restored: %s", error, extra=extra)
            continue
        if stream is not None:
            stream.claims_hash = each.bound_to
            stream.resumable_until = stream.kept_until = now + each.seconds_left - downtime_seconds
            restored.append((stream, each))
    if (
        tenant.database.state.sequence != saved.sequence
    ):  # a commit during the restore may be missing from some streams
        for stream, _ in restored:
            broker.close_stream(stream)
        return 0
    _refill(tenant, restored, now - downtime_seconds)
    for stream, _ in restored:
        broker.keep_idle(stream)
    return len(restored)


def restore_collections(broker: Broker) -> int:
    """Restore the collection streams and return their number. Call before the first client connects."""
    waiting, broker.saved_collection_streams = broker.saved_collection_streams, []
    restored: dict[tuple[Tenant, float], list[tuple[Stream, SavedStream]]] = {}
    now = broker.clock.monotonic()
    for tenant, each, then in waiting:
        if each.seconds_left <= now - then:
            continue
        state = msgspec.json.decode(each.recipe, type=dict[str, SavedCollectionStream])["collection"]
        try:
            stream = broker.graph_subscriber.restore_collection_stream(
                tenant, each.key, each.actor, state, each.position
            )
        except VedetteError as error:  # the actor is gone, or its views have changed
            extra = {"action": "window.not_restored", "tenant": tenant.name, "actor": each.actor}
            log.info("A stream cannot be restored: %s", error, extra=extra)
            continue
        stream.claims_hash = each.bound_to
        stream.resumable_until = stream.kept_until = then + each.seconds_left
        restored.setdefault((tenant, then), []).append((stream, each))
    for (tenant, then), streams in restored.items():
        _refill(tenant, streams, then)
        for each_stream, _ in streams:
            broker.keep_idle(each_stream)
    return sum(map(len, restored.values()))


def _restore_stream(broker: Broker, tenant: Tenant, saved: SavedStream) -> Stream | None:
    """Rebuild a stream. Return None if its key differs from the saved one."""
    spec: dict[str, Any] = msgspec.json.decode(saved.recipe)
    stream: Stream
    if "watch" in spec:
        params = decode_params(spec["params"])
        stream = broker.graph_subscriber.open_watch_stream(
            tenant, saved.actor, spec["watch"], params, spec["params"]
        )
        stream.feed.take()
        stream.feed.set_position(saved.position)
        stream.feed.listen(stream.mark_ready)
    else:
        moment = timestamp_from_ms(spec["time"])
        stream = broker.graph_subscriber.open_filter_stream(
            tenant, saved.actor, spec["query"], spec["auth"], moment, include_data=spec["data"]
        )
    if stream.stream_key == saved.key:
        return stream
    broker.close_stream(stream)
    return None


def _refill(tenant: Tenant, restored: list[tuple[Stream, SavedStream]], then: float) -> None:
    """Add the saved events of all streams to the window, oldest first."""
    for stream, saved in restored:
        stream.history = StreamHistory(evicted_seq=saved.lost_until, last_seq=saved.lost_until)
    events = sorted((e[0], n, e[1], e[2]) for n, (_, saved) in enumerate(restored) for e in saved.events)
    for seq, number, suffix, age in events:
        tenant.window.add(restored[number][0].history, seq, suffix, then - age)
    for stream, saved in restored:
        stream.history.last_seq = saved.last_seq
