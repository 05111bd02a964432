"""Streams: what subscribers of the same thing are told, in one order, encoded once.

A stream numbers its events with the seq of its database's partition and chains them: each says the seq before it. A
`WatchStream` speaks for one watch, shared by all who asked for the same with the same rights. A `FilterStream` speaks
for one filter over a collection; a `NodeTypeWatch` is the one watch behind all filters of a collection and an actor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.change import Event
from vedette.engine.session.watch_feed import WatchFeed
from vedette.filters.document_filter import DocumentFilter, FilterInput
from vedette.gateway.streams.filter_index import FilterIndex
from vedette.gateway.streams.replay_window import StreamHistory
from vedette.gateway.wire.crc32c import crc32c
from vedette.gateway.wire.messages import to_wire
from vedette.transport.sampled_log import LARGE_MATCH_COUNT, SLOW_FILTER_MS, log_sampled
from vedette.values import timestamp_to_ms

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Client
    from vedette.gateway.streams.tenant import Tenant
    from vedette.gateway.wire.port import Port

__all__ = ["FilterStream", "NodeTypeWatch", "Stream", "WatchStream"]

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")
"""For checksums: keys sorted, no spaces."""


MAX_UNCONFIRMED_BYTES = 32 * 1024 * 1024
"""What may be out and not confirmed of a watch of one's own, beside its credit; one event always may."""
AT_ONCE = 16
"""Events that are taken between two looks at how many bytes they were."""


class Stream:
    """One chain of events and who is told them."""

    __slots__ = (
        "acked",
        "actor",
        "checksum",
        "claims_hash",
        "desk",
        "history",
        "kept_until",
        "restore_spec",
        "resumable_until",
        "stream_id",
        "stream_key",
        "subscriber_count",
        "subscribers_by_port",
    )

    def __init__(self, desk: Tenant, number: int, key: bytes | None, actor: str | None) -> None:
        self.desk = desk
        self.stream_id = number
        self.stream_key = key
        """The hash that tokens carry; None: nobody can resume it."""
        self.actor = actor
        self.restore_spec: bytes | None = None
        """How to make it again after a restart (`window_file.py`), as JSON; None: it ends with this server."""
        self.claims_hash: bytes | None = None
        """What its filter knows of whoever asked (`claims_hash`); None: the filter does not ask."""
        # A place of its own: tokens of a former stream with the same key do not reach it.
        began = desk.next_seq()
        self.history = StreamHistory(evicted_seq=began, last_seq=began)
        self.subscriber_count = 0
        self.subscribers_by_port: dict[Port, int] = {}
        """Where its subscribers are, and how many."""
        self.checksum = 0
        """How many of them want one."""
        self.kept_until: float | None = None
        """Without subscribers it stays until then, for those who were cut off."""
        self.resumable_until = 0.0
        """Until then somebody who was cut off may come back: nothing is trimmed before its time."""
        self.acked: dict[Any, int] | None = None
        """Subscribers that acknowledge, and how far."""

    def append(self, name: bytes, body: Any, tick: int) -> tuple[int, bytes]:
        """Number an event, keep it for those who come back, and return it for those who are here."""
        desk = self.desk
        previous = self.history.last_seq
        seq = desk.next_seq()
        tail = self.encode_event(seq, previous, tick, name, body)
        desk.window.add(self.history, seq, tail, desk.clock.monotonic())
        return seq, tail

    def encode_event(self, seq: int, previous: int | None, tick: int, name: bytes, body: Any) -> bytes:
        """An event from its partition on: what stands before it names the receiver."""
        data = _encoder.encode(body)
        rest = (
            b'"resumeToken":"%b",' % self.desk.sign_token(self, seq).encode()
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
        """A subscriber has everything up to `seq`; what all have and nobody can come back for is let go."""
        self.acked = self.acked if self.acked is not None else {}
        self.acked[member] = max(seq, self.acked.get(member, 0))
        if len(self.acked) == self.subscriber_count and now >= self.resumable_until:
            self.desk.window.discard_up_to(self.history, min(self.acked.values()))

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
        self.desk.window.remove(self.history)


class WatchStream(Stream):
    """The events of one watch, as they are."""

    __slots__ = ("_bytes", "_is_ready", "_sizes", "credit", "feed", "owner", "shared", "unconfirmed")

    def __init__(
        self,
        desk: Tenant,
        number: int,
        key: bytes | None,
        actor: str | None,
        feed: WatchFeed,
        *,
        shared: bool,
    ) -> None:
        super().__init__(desk, number, key, actor)
        self.feed = feed
        self.shared = shared
        self.credit: int | None = None
        """The most events that are out and not confirmed; None: the window bounds them. 0: they are pulled."""
        self.unconfirmed: deque[tuple[int, int]] | None = None
        """Of a reliable watch: seq and position of what is out."""
        self._sizes: deque[int] | None = None
        """Bytes of the events that were sent last, as many as are not confirmed; and all of them together."""
        self._bytes = 0
        self.owner: tuple[Client, str] | None = None
        """Whose it is, when it is not shared, and by which name."""
        self._is_ready = False

    def mark_ready(self) -> None:
        """There may be something. Called from any thread, with locks held."""
        if not self._is_ready:
            self._is_ready = True
            self.desk.mark_ready(self)

    def take_ready(self) -> list[tuple[Stream, int, bytes]]:
        """Everything that is ready, numbered."""
        self._is_ready = False
        if self.credit is None:
            return [(self, *self.append_event(event)) for event in self.feed.take(None)]
        numbered: list[tuple[Stream, int, bytes]] = []
        while (wanted := min(self._available_credit(), AT_ONCE)) > 0:
            events = self.feed.take(wanted)
            for event in events:
                seq, tail = self.append_event(event)
                self._count(len(tail))
                numbered.append((self, seq, tail))
            if self._is_drained(events, wanted):
                break
        return numbered

    def _is_drained(self, events: list[Event], wanted: int) -> bool:
        """Whether there is no more to take now. Less work than was asked for is a consumer's fair share: another poll
        would take a part of the others'."""
        work = self.feed.options.mode == "consume" and bool(events) and events[-1].delivery_id is not None
        return not events or (work and len(events) < wanted)

    def _count(self, size: int) -> None:
        self._sizes = self._sizes if self._sizes is not None else deque()
        self._sizes.append(size)
        self._bytes += size

    def _available_credit(self) -> int:
        """How many more events may go out: as the credit says, and not when too many bytes are not confirmed."""
        assert self.credit is not None
        out = self._unconfirmed
        while (
            self._sizes and len(self._sizes) > out
        ):  # the oldest; deliveries end in any order, so about that
            self._bytes -= self._sizes.popleft()
        return self.credit - out if self._bytes < MAX_UNCONFIRMED_BYTES else 0

    def pull(self, limit: int | None) -> list[tuple[int, bytes]]:
        """What is ready, for one who asks; not more bytes at a time than may be out."""
        pulled: list[tuple[int, bytes]] = []
        size = 0
        while size < MAX_UNCONFIRMED_BYTES and (limit is None or len(pulled) < limit):
            wanted = AT_ONCE if limit is None else min(AT_ONCE, limit - len(pulled))
            events = self.feed.take(wanted)
            numbered = [self.append_event(event) for event in events]
            pulled += numbered
            size += sum(len(tail) for _, tail in numbered)
            if self._is_drained(events, wanted):
                break
        return pulled

    @property
    def _unconfirmed(self) -> int:
        """What counts against the credit: of a consume watch its deliveries alone, not its `initial`."""
        return (
            self.feed.unacknowledged_count
            if self.feed.options.mode == "consume"
            else len(self.unconfirmed or ())
        )

    def append_event(self, event: Event) -> tuple[int, bytes]:
        payload = event.to_dict()
        if "attempt" in event.attributes:
            payload["attempt"] = event.attributes["attempt"]
        seq, tail = self.append(b'"payload"', to_wire(payload), event.tick)
        reliable = self.feed.options.delivery == "reliable"
        if self.credit is not None and reliable and event.delivery_id is None:
            self.unconfirmed = self.unconfirmed if self.unconfirmed is not None else deque()
            self.unconfirmed.append((seq, event.position))
        return seq, tail

    def append(self, name: bytes, body: Any, tick: int) -> tuple[int, bytes]:
        if self.credit is None:
            return super().append(name, body, tick)
        previous = self.history.last_seq
        seq = self.history.last_seq = self.history.evicted_seq = self.desk.next_seq()
        return seq, self.encode_event(seq, previous, tick, name, body)

    def encode_initial(self, event: Event) -> bytes:
        """A snapshot for one subscriber: it stands where the stream stands, and begins the chain."""
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
            self.desk.release_shared_watch(self.actor, self.feed)


class NodeTypeWatch:
    """The one watch behind every filter over a collection with the same rights."""

    __slots__ = ("_is_ready", "actor", "collection", "desk", "feed", "index", "streams")

    def __init__(self, desk: Tenant, collection: str, actor: str | None, feed: WatchFeed) -> None:
        self.desk, self.collection, self.actor, self.feed = desk, collection, actor, feed
        self.streams: dict[bytes, FilterStream] = {}
        self.index: FilterIndex[FilterStream] = FilterIndex()
        self._is_ready = False

    def mark_ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            self.desk.mark_ready(self)

    def take_ready(self) -> list[tuple[Stream, int, bytes]]:
        self._is_ready = False
        told: list[tuple[Stream, int, bytes]] = []
        for event in self.feed.take():
            told += self._judge(event)
        return told

    def _judge(self, event: Event) -> list[tuple[Stream, int, bytes]]:
        """What one change means to the filters that it may concern."""
        desk, begun = self.desk, self.desk.clock.monotonic()
        now, told, asked = timestamp_to_ms(desk.clock.now()), list[tuple[Stream, int, bytes]](), 0
        images = before, after = _images(event)
        for stream in self.index.candidates(images):
            asked += 1
            delta = stream.delta_for(before, after, now)
            if delta is not None:
                told.append((stream, *stream.append(b'"delta"', delta, event.tick)))
        desk.candidates += asked
        desk.matches += len(told)
        milliseconds = (desk.clock.monotonic() - begun) * 1000
        subject = f"{desk.tenant}/{self.collection}"
        if milliseconds >= SLOW_FILTER_MS:
            text = f"{asked} filters over {subject} took {milliseconds:.0f} ms for one change"
            log_sampled("filter.slow", subject, text)
        if len(told) >= LARGE_MATCH_COUNT:
            log_sampled("change.wide", subject, f"One change of {subject} matched {len(told)} filters")
        return told

    def close_unused(self) -> None:
        """End it when there is no filter behind it."""
        if not self.streams:
            self.desk.close_tap(self)

    def documents(self, event: Event) -> list[dict[str, Any]]:
        return [dict(row["d"]) for row in event.matches or ()]


class FilterStream(Stream):
    """The documents of a collection that a filter is true of: enter, update, leave, delete."""

    __slots__ = ("_filter", "include_data", "tap")

    def __init__(
        self, tap: NodeTypeWatch, number: int, key: bytes, condition: DocumentFilter, *, include_data: bool
    ) -> None:
        super().__init__(tap.desk, number, key, tap.actor)
        self.tap = tap
        self._filter = condition
        self.include_data = include_data
        tap.streams[key] = self
        tap.index.add(self, condition.expression)

    def matches(self, document: Mapping[str, Any] | None, op: str, before: Mapping[str, Any] | None) -> bool:
        if document is None:
            return False
        collection = self.tap.collection
        return self._filter.matches(
            FilterInput(doc=document, id=str(document["id"]), collection=collection, op=op, before=before)
        )

    def delta_for(
        self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, now_ms: int
    ) -> dict[str, Any] | None:
        """What the change means to those who asked with this filter; None when nothing."""
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
            "id": f"{self.tap.collection}/{document['id']}",
            "timestamp": now_ms,
        }
        if self.include_data and is_now:
            delta["document"] = to_wire(after)
        return delta

    def close(self) -> None:
        super().close()
        assert self.stream_key is not None
        self.tap.streams.pop(self.stream_key, None)
        self.tap.index.remove(self)
        self.tap.close_unused()


def _images(event: Event) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    match = dict(event.match["d"]) if event.match is not None else None
    if event.type == "added":
        return None, match
    if event.type == "removed":
        return match, None
    return (dict(event.prev["d"]) if event.prev is not None else match), match
