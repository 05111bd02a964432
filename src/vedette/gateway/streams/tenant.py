"""One database at the broker: streams, sequence numbers, replay window, and the sessions of shared watches."""

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
"""Shared watches are spread over sessions of this size, so that removing one from its session stays cheap."""


class Tenant:
    """The broker's state for one database. Nothing here is reachable through another tenant."""

    def __init__(
        self,
        database: Database,
        *,
        signer: TokenSigner,
        limits: ReplayLimits,
        clock: Clock,
        mark_ready: Callable[[Any], None],
    ) -> None:
        self.database = database
        self.name = database.name
        self.clock = clock
        self.mark_ready = mark_ready
        self.seq = database.boot << 32
        """Last seq of partition 0. It starts above every seq that earlier openings of the database can have used."""
        self.window = ReplayWindow(limits)
        self.streams: dict[bytes, Stream] = {}
        """Streams that can be joined and resumed, by stream key."""
        self.durable_streams: dict[str, WatchStream] = {}
        """Streams that currently publish durable watches, by watch handle."""
        self.node_type_watches: dict[tuple[str, str | None], NodeTypeWatch] = {}
        self.connections = 0
        self.subscriptions = 0
        self.candidates = 0
        """Filter evaluations: candidates that the index returned."""
        self.matches = 0
        """Filter evaluations that matched."""
        self.event_prefix = (
            b'{"type":"event","payload":{"version":1,"tenant":' + encode(database.name) + b',"subId":'
        )
        self._signer = signer
        self._sessions: dict[str | None, list[Session]] = {}
        self._counts: dict[str, int] = {}

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    # --- resume tokens ------------------------------------------------------------------------------------------

    def sign_token(self, stream: Stream, seq: int, *, snapshot_pending: bool = False) -> str:
        assert stream.stream_key is not None
        return self._signer.sign(
            self.name, stream.stream_key, self.database.epoch, seq, snapshot_pending=snapshot_pending
        )

    def verify_token(self, text: str) -> ResumeToken | None:
        return self._signer.verify(self.name, text)

    # --- shared watches -----------------------------------------------------------------------------------------

    def shared_session(self, actor: str | None) -> Session:
        """Return a session of this actor with room for one more shared watch."""
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
        """Remove a shared watch, and close its session if it was the last one there."""
        session = feed.session
        feed.remove()
        self._counts[session.id] -= 1
        if not self._counts[session.id]:
            del self._counts[session.id]
            self._sessions[actor].remove(session)
            if not self._sessions[actor]:
                del self._sessions[actor]
            session.close()

    # --- node-type watches --------------------------------------------------------------------------------------

    def node_type_watch(self, collection: str, actor: str | None) -> NodeTypeWatch:
        """Return the watch behind all filters over the collection. The first filter creates it."""
        known = self.node_type_watches.get((collection, actor))
        if known is not None:
            return known
        if collection not in self.database.schema.nodes or collection.startswith("_"):
            text = f"query.collection: no collection or node type is named {collection[:80]!r}"
            raise FilterError("E1201", text, fields={"collection": collection[:80]})
        feed = self.create_shared_watch(actor, f"WATCH d: {collection} [initial: none] RETURN d", {})
        watch = self.node_type_watches[collection, actor] = NodeTypeWatch(self, collection, actor, feed)
        feed.listen(watch.mark_ready)
        return watch

    def close_node_type_watch(self, watch: NodeTypeWatch) -> None:
        del self.node_type_watches[watch.collection, watch.actor]
        self.release_shared_watch(watch.actor, watch.feed)

    def close_stream(self, stream: Stream) -> None:
        if stream.stream_key is not None and self.streams.get(stream.stream_key) is stream:
            del self.streams[stream.stream_key]
        if isinstance(stream, WatchStream) and self.durable_streams.get(stream.feed.id) is stream:
            del self.durable_streams[stream.feed.id]
        stream.close()
