"""One database at the broker: its streams, its seq, its replay window, and the sessions that shared watches live in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vedette.clock import Clock
from vedette.engine.database import Database
from vedette.engine.session.session import Session
from vedette.engine.session.watch_feed import WatchFeed
from vedette.errors import FilterError
from vedette.gateway.streams.replay_window import ReplayLimits, ReplayWindow
from vedette.gateway.streams.stream import NodeTypeWatch, Stream, WatchStream
from vedette.gateway.wire.messages import encode
from vedette.gateway.wire.resume_token import ResumeToken, TokenSigner

__all__ = ["Tenant"]

_WATCHES_PER_SESSION = 256
"""Shared watches live in sessions of this many, so that taking one out of a session's list stays cheap."""


class Tenant:
    """What the broker knows about one tenant. Nothing here is ever looked up by another tenant's name."""

    def __init__(
        self,
        database: Database,
        *,
        seal: TokenSigner,
        bounds: ReplayLimits,
        clock: Clock,
        ring: Callable[[Any], None],
    ) -> None:
        self.database = database
        self.tenant = database.name
        self.clock = clock
        self.mark_ready = ring
        self.seq = database.boot << 32
        """The last seq of partition 0. It begins above everything that an earlier opening can have given out."""
        self.window = ReplayWindow(bounds)
        self.streams: dict[bytes, Stream] = {}
        """Streams that can be joined and resumed, by the hash of what they are."""
        self.durable_streams: dict[str, WatchStream] = {}
        """Watches that outlive their sessions, by handle: who is told their events now."""
        self.node_type_watches: dict[tuple[str, str | None], NodeTypeWatch] = {}
        self.connections = 0
        self.subscriptions = 0
        self.candidates = 0
        """Filters that were asked about a change, because the index proposed them."""
        self.matches = 0
        """Those of them that it concerned."""
        self.event_prefix = (
            b'{"type":"event","payload":{"version":1,"tenant":' + encode(database.name) + b',"subId":'
        )
        self._seal = seal
        self._sessions: dict[str | None, list[Session]] = {}
        self._counts: dict[str, int] = {}

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    # --- tokens -------------------------------------------------------------------------------------------------

    def sign_token(self, stream: Stream, seq: int, *, pending: bool = False) -> str:
        assert stream.stream_key is not None
        return self._seal.sign(self.tenant, stream.stream_key, self.database.epoch, seq, pending=pending)

    def verify_token(self, text: str) -> ResumeToken | None:
        return self._seal.verify(self.tenant, text)

    # --- shared watches -----------------------------------------------------------------------------------------

    def shared_session(self, actor: str | None) -> Session:
        """A session with room for one more shared watch of this actor."""
        sessions = self._sessions.setdefault(actor, [])
        for session in reversed(sessions[-2:]):
            if self._counts[session.id] < _WATCHES_PER_SESSION:
                return session
        session = self.database.session(actor)
        sessions.append(session)
        self._counts[session.id] = 0
        return session

    def create_shared_watch(self, actor: str | None, text: str, params: Mapping[str, Any]) -> WatchFeed:
        session = self.shared_session(actor)
        feed = WatchFeed.create(session, text, params)
        self._counts[session.id] += 1
        return feed

    def release_shared_watch(self, actor: str | None, feed: WatchFeed) -> None:
        """A shared watch is not wanted any more."""
        session = feed.session
        feed.remove()
        self._counts[session.id] -= 1
        if not self._counts[session.id]:
            del self._counts[session.id]
            self._sessions[actor].remove(session)
            if not self._sessions[actor]:
                del self._sessions[actor]
            session.close()

    # --- collections --------------------------------------------------------------------------------------------

    def node_type_watch(self, collection: str, actor: str | None) -> NodeTypeWatch:
        """The watch behind all filters over the collection; made for the first of them."""
        known = self.node_type_watches.get((collection, actor))
        if known is not None:
            return known
        if collection not in self.database.schema.nodes or collection.startswith("_"):
            text = f"query.collection: there is no collection or node type {collection[:80]!r}"
            raise FilterError("E1201", text, fields={"collection": collection[:80]})
        feed = self.create_shared_watch(actor, f"WATCH d: {collection} [initial: none] RETURN d", {})
        tap = self.node_type_watches[collection, actor] = NodeTypeWatch(self, collection, actor, feed)
        feed.listen(tap.mark_ready)
        return tap

    def close_tap(self, tap: NodeTypeWatch) -> None:
        del self.node_type_watches[tap.collection, tap.actor]
        self.release_shared_watch(tap.actor, tap.feed)

    def close_stream(self, stream: Stream) -> None:
        if stream.stream_key is not None and self.streams.get(stream.stream_key) is stream:
            del self.streams[stream.stream_key]
        if isinstance(stream, WatchStream) and self.durable_streams.get(stream.feed.id) is stream:
            del self.durable_streams[stream.feed.id]
        stream.close()
