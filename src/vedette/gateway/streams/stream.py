"""Streams: number, encode and retain each event once for all equal subscribers. Engine thread only, except
`mark_ready`.

A stream numbers its events with its database's seq and chains them: each event carries the seq of the event before it.
A `WatchStream` publishes one watch, shared by all subscribers with equal text, parameters and rights. A `FilterStream`
publishes one filter over a collection. A `NodeTypeWatch` is the single watch behind all filters of one collection and
actor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.change import Event
from vedette.engine.session.watch_feed import WatchFeed
from vedette.filters.document_filter import DocumentFilter
from vedette.filters.inputs import FilterInput
from vedette.gateway.streams.filter_index import FilterIndex
from vedette.gateway.streams.replay_window import StreamHistory
from vedette.gateway.wire.crc32c import crc32c
from vedette.gateway.wire.messages import to_wire
from vedette.transport.sampled_log import LARGE_MATCH_COUNT, SLOW_FILTER_MS, log_sampled
from vedette.values import timestamp_to_ms

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Client
    from vedette.gateway.streams.tenant import Tenant
    from vedette.gateway.wire.broker_link import Port

__all__ = ["FilterStream", "NodeTypeWatch", "Stream", "WatchStream"]

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")
"""Encodes checksummed values: sorted keys, no spaces."""


MAX_UNCONFIRMED_BYTES = 32 * 1024 * 1024
"""Limit on unconfirmed bytes of an exclusive watch, in addition to its credit. One event is always allowed."""
TAKE_BATCH_EVENTS = 16
"""Events taken between two checks of the byte limit."""


class Stream:
    """One chain of events and its subscribers."""

    __slots__ = (
        "acked",
        "actor",
        "checksum",
        "claims_hash",
        "history",
        "kept_until",
        "restore_spec",
        "resumable_until",
        "stream_id",
        "stream_key",
        "subscriber_count",
        "subscribers_by_port",
        "tenant",
    )

    def __init__(self, tenant: Tenant, number: int, key: bytes | None, actor: str | None) -> None:
        self.tenant = tenant
        self.stream_id = number
        self.stream_key = key
        """Hash that resume tokens carry; None if the stream cannot be resumed."""
        self.actor = actor
        self.restore_spec: bytes | None = None
        """JSON from which the next server rebuilds the stream (`window_file.py`); None if it ends here."""
        self.claims_hash: bytes | None = None
        """Hash of the claims that the filter was bound to; None if the filter does not depend on claims."""
        # Start at a fresh seq, so that tokens of an earlier stream with the same key cannot resume this one.
        began = tenant.next_seq()
        self.history = StreamHistory(evicted_seq=began, last_seq=began)
        self.subscriber_count = 0
        self.subscribers_by_port: dict[Port, int] = {}
        """Number of subscribers by gateway."""
        self.checksum = 0
        """Number of subscribers that want checksums."""
        self.kept_until: float | None = None
        """Monotonic time until which the stream is kept without subscribers."""
        self.resumable_until = 0.0
        """Monotonic time until which a disconnected client may resume. Until then, acknowledged events stay in the
        window.
        """
        self.acked: dict[Any, int] | None = None
        """Last acknowledged seq by subscriber; None if none has acknowledged."""

    def append(self, name: bytes, body: Any, tick: int) -> tuple[int, bytes]:
        """Number, encode and retain an event. Return its seq and its encoded suffix."""
        tenant = self.tenant
        previous = self.history.last_seq
        seq = tenant.next_seq()
        suffix = self.encode_event(seq, previous, tick, name, body)
        tenant.window.add(self.history, seq, suffix, tenant.clock.monotonic())
        return seq, suffix

    def encode_event(self, seq: int, previous: int | None, tick: int, name: bytes, body: Any) -> bytes:
        """Encode an event from its partition field on. The part before it names the receiver."""
        data = _encoder.encode(body)
        rest = (
            b'"resumeToken":"%b",' % self.tenant.sign_token(self, seq).encode()
            if self.stream_key is not None
            else b""
        )
        if self.checksum:
            rest += b'"checksum":"%08x",' % crc32c(_canonical.encode(body))
        before = b"%d" % previous if previous is not None else b"null"
        return b',"partition":0,"seq":%d,"prevSeq":%b,"lsn":%d,%b:%b,%b"extensions":{}}}' % (
            seq,
            before,
            tick,
            name,
            data,
            rest,
        )

    def acknowledge(self, member: Any, seq: int, now: float) -> None:
        """Record that a subscriber has everything up to `seq`. Events that all subscribers have and no client can
        resume are dropped.
        """
        self.acked = self.acked if self.acked is not None else {}
        self.acked[member] = max(seq, self.acked.get(member, 0))
        if len(self.acked) == self.subscriber_count and now >= self.resumable_until:
            self.tenant.window.discard_up_to(self.history, min(self.acked.values()))

    def add_subscriber(self, port: Port, *, checksum: bool) -> None:
        self.subscriber_count += 1
        self.subscribers_by_port[port] = self.subscribers_by_port.get(port, 0) + 1
        self.checksum += checksum
        self.kept_until = None

    def remove_subscriber(self, port: Port, member: Any, *, checksum: bool) -> None:
        self.subscriber_count -= 1
        left = self.subscribers_by_port[port] - 1
        if left:
            self.subscribers_by_port[port] = left
        else:
            del self.subscribers_by_port[port]
        self.checksum -= checksum
        if self.acked is not None:
            self.acked.pop(member, None)

    def close(self) -> None:
        self.tenant.window.remove(self.history)


class WatchStream(Stream):
    """The events of one watch."""

    __slots__ = ("_bytes", "_is_ready", "_sizes", "credit", "feed", "owner", "shared", "unconfirmed")

    def __init__(
        self,
        tenant: Tenant,
        number: int,
        key: bytes | None,
        actor: str | None,
        feed: WatchFeed,
        *,
        shared: bool,
    ) -> None:
        super().__init__(tenant, number, key, actor)
        self.feed = feed
        self.shared = shared
        self.credit: int | None = None
        """Maximum number of unconfirmed events. None: the replay window is the only bound. 0: the client pulls."""
        self.unconfirmed: deque[tuple[int, int]] | None = None
        """Reliable watch: seq and position of each unconfirmed event."""
        self._sizes: deque[int] | None = None
        """Bytes of the most recently sent events, one entry per unconfirmed event. `_bytes` is their sum."""
        self._bytes = 0
        self.owner: tuple[Client, str] | None = None
        """Client and subscription id that own the watch; None if it is shared."""
        self._is_ready = False

    def mark_ready(self) -> None:
        """Report that events may be ready. Called from any thread, possibly with locks held."""
        if not self._is_ready:
            self._is_ready = True
            self.tenant.mark_ready(self)

    def take_ready(self) -> list[tuple[Stream, int, bytes]]:
        """Take all events that are ready and number them."""
        self._is_ready = False
        if self.credit is None:
            return [(self, *self.append_event(event)) for event in self.feed.take(None)]
        numbered: list[tuple[Stream, int, bytes]] = []
        while (limit := min(self._available_credit(), TAKE_BATCH_EVENTS)) > 0:
            events = self.feed.take(limit)
            for event in events:
                seq, suffix = self.append_event(event)
                self._count(len(suffix))
                numbered.append((self, seq, suffix))
            if self._is_drained(events, limit):
                break
        return numbered

    def _is_drained(self, events: list[Event], limit: int) -> bool:
        """True if the feed has nothing more to give now. In consume mode a short batch is this consumer's fair share;
        polling again would take jobs from other consumers.
        """
        is_job = self.feed.options.mode == "consume" and bool(events) and events[-1].delivery_id is not None
        return not events or (is_job and len(events) < limit)

    def _count(self, size: int) -> None:
        self._sizes = self._sizes if self._sizes is not None else deque()
        self._sizes.append(size)
        self._bytes += size

    def _available_credit(self) -> int:
        """Return how many more events may be sent: the unused credit, or 0 if too many bytes are unconfirmed."""
        assert self.credit is not None
        out = self._unconfirmed
        while (
            self._sizes and len(self._sizes) > out
        ):  # drops the oldest sizes; deliveries end in any order, so the sum is approximate
            self._bytes -= self._sizes.popleft()
        return self.credit - out if self._bytes < MAX_UNCONFIRMED_BYTES else 0

    def pull(self, limit: int | None) -> list[tuple[int, bytes]]:
        """Take up to `limit` ready events for a pull request, bounded by MAX_UNCONFIRMED_BYTES."""
        pulled: list[tuple[int, bytes]] = []
        size = 0
        while size < MAX_UNCONFIRMED_BYTES and (limit is None or len(pulled) < limit):
            batch_size = TAKE_BATCH_EVENTS if limit is None else min(TAKE_BATCH_EVENTS, limit - len(pulled))
            events = self.feed.take(batch_size)
            numbered = [self.append_event(event) for event in events]
            pulled += numbered
            size += sum(len(tail) for _, tail in numbered)
            if self._is_drained(events, batch_size):
                break
        return pulled

    @property
    def _unconfirmed(self) -> int:
        """Number of events that count against the credit. In consume mode only deliveries count, not `initial`."""
        return (
            self.feed.unacknowledged_count
            if self.feed.options.mode == "consume"
            else len(self.unconfirmed or ())
        )

    def append_event(self, event: Event) -> tuple[int, bytes]:
        payload = event.to_dict()
        if "attempt" in event.attributes:
            payload["attempt"] = event.attributes["attempt"]
        seq, suffix = self.append(b'"payload"', to_wire(payload), event.tick)
        reliable = self.feed.options.delivery == "reliable"
        if self.credit is not None and reliable and event.delivery_id is None:
            self.unconfirmed = self.unconfirmed if self.unconfirmed is not None else deque()
            self.unconfirmed.append((seq, event.position))
        return seq, suffix

    def append(self, name: bytes, body: Any, tick: int) -> tuple[int, bytes]:
        if self.credit is None:
            return super().append(name, body, tick)
        previous = self.history.last_seq
        seq = self.history.last_seq = self.history.evicted_seq = self.tenant.next_seq()
        return seq, self.encode_event(seq, previous, tick, name, body)

    def encode_initial(self, event: Event) -> bytes:
        """Encode a snapshot for one subscriber at the stream's current seq. It is the first event of the chain."""
        return self.encode_event(
            self.history.last_seq, None, event.tick, b'"payload"', to_wire(event.to_dict())
        )

    def acknowledge(self, member: Any, seq: int, now: float) -> None:
        if self.credit is None:
            super().acknowledge(member, seq, now)
            return
        position = None
        while self.unconfirmed and self.unconfirmed[0][0] <= seq:
            _, position = self.unconfirmed.popleft()
        if position is not None:
            self.feed.confirm(position)
        self.mark_ready()

    def close(self) -> None:
        super().close()
        if self.shared:
            self.tenant.release_shared_watch(self.actor, self.feed)


class NodeTypeWatch:
    """The single watch behind all filters over a collection with equal rights."""

    __slots__ = ("_is_ready", "actor", "collection", "feed", "index", "streams", "tenant")

    def __init__(self, tenant: Tenant, collection: str, actor: str | None, feed: WatchFeed) -> None:
        self.tenant, self.collection, self.actor, self.feed = tenant, collection, actor, feed
        self.streams: dict[bytes, FilterStream] = {}
        self.index: FilterIndex[FilterStream] = FilterIndex()
        self._is_ready = False

    def mark_ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            self.tenant.mark_ready(self)

    def take_ready(self) -> list[tuple[Stream, int, bytes]]:
        self._is_ready = False
        matched: list[tuple[Stream, int, bytes]] = []
        for event in self.feed.take():
            matched += self._match_filters(event)
        return matched

    def _match_filters(self, event: Event) -> list[tuple[Stream, int, bytes]]:
        """Evaluate one change against the candidate filters and append an event to each stream that it affects."""
        tenant, begun = self.tenant, self.tenant.clock.monotonic()
        now, matched, candidates = timestamp_to_ms(tenant.clock.now()), list[tuple[Stream, int, bytes]](), 0
        images = before, after = _images(event)
        for stream in self.index.candidates(images):
            candidates += 1
            delta = stream.delta_for(before, after, now)
            if delta is not None:
                matched.append((stream, *stream.append(b'"delta"', delta, event.tick)))
        tenant.candidates += candidates
        tenant.matches += len(matched)
        milliseconds = (tenant.clock.monotonic() - begun) * 1000
        subject = f"{tenant.name}/{self.collection}"
        if milliseconds >= SLOW_FILTER_MS:
            text = f"{candidates} filters over {subject} took {milliseconds:.0f} ms for one change"
            log_sampled("filter.slow", subject, text)
        if len(matched) >= LARGE_MATCH_COUNT:
            log_sampled("change.wide", subject, f"One change of {subject} matched {len(matched)} filters")
        return matched

    def close_unused(self) -> None:
        """Close the watch if no filter uses it."""
        if not self.streams:
            self.tenant.close_node_type_watch(self)

    def documents(self, event: Event) -> list[dict[str, Any]]:
        return [dict(row["d"]) for row in event.matches or ()]


class FilterStream(Stream):
    """The documents of a collection that match a filter, as enter, update, leave and delete deltas."""

    __slots__ = ("_filter", "include_data", "node_type_watch")

    def __init__(
        self,
        node_type_watch: NodeTypeWatch,
        number: int,
        key: bytes,
        condition: DocumentFilter,
        *,
        include_data: bool,
    ) -> None:
        super().__init__(node_type_watch.tenant, number, key, node_type_watch.actor)
        self.node_type_watch = node_type_watch
        self._filter = condition
        self.include_data = include_data
        node_type_watch.streams[key] = self
        node_type_watch.index.add(self, condition.expression)

    def matches(self, document: Mapping[str, Any] | None, op: str, before: Mapping[str, Any] | None) -> bool:
        if document is None:
            return False
        collection = self.node_type_watch.collection
        return self._filter.matches(
            FilterInput(doc=document, id=str(document["id"]), collection=collection, op=op, before=before)
        )

    def delta_for(
        self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, now_ms: int
    ) -> dict[str, Any] | None:
        """Return the delta of a change for this filter; None if the change does not affect it."""
        op = "create" if before is None else "delete" if after is None else "update"
        was, is_now = self.matches(before, op, None), self.matches(after, op, before)
        if not was and not is_now:
            return None
        document = after if after is not None else before
        assert document is not None
        if was and is_now:
            kind, reason = "update", "update"
        elif is_now:
            kind, reason = "create", "enter"
        else:
            kind, reason = "delete", "delete" if after is None else "leave"
        delta = {
            "type": kind,
            "reason": reason,
            "id": f"{self.node_type_watch.collection}/{document['id']}",
            "timestamp": now_ms,
        }
        if self.include_data and is_now:
            delta["document"] = to_wire(after)
        return delta

    def close(self) -> None:
        super().close()
        assert self.stream_key is not None
        self.node_type_watch.streams.pop(self.stream_key, None)
        self.node_type_watch.index.remove(self)
        self.node_type_watch.close_unused()


def _images(event: Event) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    match = dict(event.match["d"]) if event.match is not None else None
    if event.type == "added":
        return None, match
    if event.type == "removed":
        return match, None
    return (dict(event.prev["d"]) if event.prev is not None else match), match
