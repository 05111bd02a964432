"""One database at the broker: its streams, its event log, and the sessions of shared watches. Engine thread only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vedette.clock import Clock
from vedette.engine.database import Database
from vedette.engine.session.session import Session
from vedette.engine.session.watch_feed import WatchFeed
from vedette.errors import FilterError
from vedette.gateway.limits import ReplayLimits
from vedette.gateway.streams.event_log import EventLog
from vedette.gateway.streams.filter_stream import FilterCounters, FilterStream, NodeTypeWatch
from vedette.gateway.streams.stream import Stream
from vedette.gateway.streams.watch_stream import WatchStream
from vedette.gateway.wire.resume_token import TokenSigner

__all__ = ["Tenant"]

_WATCHES_PER_SESSION = 256
"""Shared watches are spread over sessions of this size, so that removing one from its session stays cheap."""


class Tenant:
    """The broker's state for one database. No object here is reachable from another tenant."""

    def __init__(
        self,
        database: Database,
        *,
        signer: TokenSigner,
        limits: ReplayLimits,
        clock: Clock,
        mark_ready: Callable[[WatchStream | NodeTypeWatch], None],
    ) -> None:
        """`mark_ready` schedules a watch that may have events. Any thread may call it, possibly with locks held."""
        self.database = database
        self.name = database.name
        self.clock = clock
        self.event_log = EventLog(database, signer=signer, limits=limits, clock=clock)
        self.streams: dict[bytes, Stream] = {}
        """Streams that can be joined and resumed, by stream key."""
        self.durable_streams: dict[str, WatchStream] = {}
        """Streams that currently publish durable watches, by watch handle."""
        self.node_type_watches: dict[tuple[str, str | None], NodeTypeWatch] = {}
        """Watches behind filters, by node type and actor."""
        self.connections = 0
        self.subscriptions = 0
        self.filter_counters = FilterCounters()
        self._mark_ready = mark_ready
        self._sessions: dict[str | None, list[Session]] = {}
        """Sessions of shared watches, by actor; the most recent last."""
        self._watch_counts: dict[str, int] = {}
        """Number of shared watches by session id."""

    # --- streams ------------------------------------------------------------------------------------------------

    def open_shared_stream(
        self, stream_id: int, key: bytes, actor: str | None, text: str, params: Mapping[str, Any]
    ) -> WatchStream:
        """Open a stream over a watch that all subscribers with this key share."""
        feed = self._create_shared_watch(actor, text, params)
        stream = WatchStream(
            self.event_log, stream_id, key, actor, feed, shared=True, on_ready=self._mark_ready
        )
        self.streams[key] = stream
        return stream

    def open_exclusive_stream(self, stream_id: int, actor: str | None, feed: WatchFeed) -> WatchStream:
        """Open a stream over a watch of the connection's own session. It cannot be joined or resumed."""
        return WatchStream(
            self.event_log, stream_id, None, actor, feed, shared=False, on_ready=self._mark_ready
        )

    def close_stream(self, stream: Stream) -> None:
        """Close a stream and release the watch behind it. An exclusive watch belongs to its session and stays."""
        if stream.stream_key is not None and self.streams.get(stream.stream_key) is stream:
            del self.streams[stream.stream_key]
        stream.close()
        if isinstance(stream, WatchStream):
            if self.durable_streams.get(stream.feed.id) is stream:
                del self.durable_streams[stream.feed.id]
            if stream.shared:
                self._release_shared_watch(stream.actor, stream.feed)
        elif isinstance(stream, FilterStream):
            self.close_if_unused(stream.node_type_watch)

    # --- shared watches -----------------------------------------------------------------------------------------

    def shared_session(self, actor: str | None) -> Session:
        """Return a session of this actor with room for one more shared watch."""
        sessions = self._sessions.setdefault(actor, [])
        for session in reversed(sessions[-2:]):
            if self._watch_counts[session.id] < _WATCHES_PER_SESSION:
                return session
        session = self.database.session(actor)
        sessions.append(session)
        self._watch_counts[session.id] = 0
        return session

    def _create_shared_watch(self, actor: str | None, text: str, params: Mapping[str, Any]) -> WatchFeed:
        session = self.shared_session(actor)
        feed = WatchFeed.create(session, text, params)
        self._watch_counts[session.id] += 1
        return feed

    def _release_shared_watch(self, actor: str | None, feed: WatchFeed) -> None:
        """Remove a shared watch, and close its session if it was the last one there."""
        session = feed.session
        feed.remove()
        self._watch_counts[session.id] -= 1
        if not self._watch_counts[session.id]:
            del self._watch_counts[session.id]
            self._sessions[actor].remove(session)
            if not self._sessions[actor]:
                del self._sessions[actor]
            session.close()

    # --- node-type watches --------------------------------------------------------------------------------------

    def node_type_watch(self, collection: str, actor: str | None) -> NodeTypeWatch:
        """Return the watch behind all filters over a node type. The first filter creates it."""
        known = self.node_type_watches.get((collection, actor))
        if known is not None:
            return known
        if collection not in self.database.schema.nodes or collection.startswith("_"):
            text = f"query.collection: no collection or node type is named {collection[:80]!r}"
            raise FilterError("E1201", text, fields={"collection": collection[:80]})
        feed = self._create_shared_watch(actor, f"WATCH d: {collection} [initial: none] RETURN d", {})
        watch = NodeTypeWatch(
            self.event_log, collection, actor, feed, self.filter_counters, on_ready=self._mark_ready
        )
        self.node_type_watches[collection, actor] = watch
        feed.listen(watch.mark_ready)
        return watch

    def close_if_unused(self, watch: NodeTypeWatch) -> None:
        """Close a node-type watch that no filter uses."""
        if not watch.streams:
            del self.node_type_watches[watch.collection, watch.actor]
            self._release_shared_watch(watch.actor, watch.feed)
