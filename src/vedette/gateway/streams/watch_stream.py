"""Streams over one watch of the graph, with credit for exclusive watches. Engine thread only, except `mark_ready`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from vedette.change import Event
from vedette.engine.session.watch_feed import WatchFeed
from vedette.gateway.streams.event_log import EventLog
from vedette.gateway.streams.stream import EncodedEvent, Stream, SubscriptionAddress
from vedette.gateway.wire.messages import to_wire

__all__ = ["WatchStream"]

MAX_UNCONFIRMED_BYTES = 32 * 1024 * 1024
"""Limit on unconfirmed bytes of an exclusive watch, in addition to its credit. One event is always allowed."""
TAKE_BATCH_EVENTS = 16
"""Events taken between two checks of the byte limit."""


class WatchStream(Stream):
    """The events of one watch."""

    __slots__ = (
        "_bytes",
        "_is_ready",
        "_on_ready",
        "_sizes",
        "credit",
        "feed",
        "owner",
        "shared",
        "unconfirmed",
    )

    def __init__(
        self,
        event_log: EventLog,
        stream_id: int,
        stream_key: bytes | None,
        actor: str | None,
        feed: WatchFeed,
        *,
        shared: bool,
        on_ready: Callable[[WatchStream], None],
    ) -> None:
        """`on_ready` is called when events may be ready: from any thread, possibly with locks held."""
        super().__init__(event_log, stream_id, stream_key, actor)
        self._on_ready = on_ready
        self.feed = feed
        self.shared = shared
        self.credit: int | None = None
        """Maximum number of unconfirmed events. None: the replay window is the only bound. 0: the client pulls."""
        self.unconfirmed: deque[tuple[int, int]] | None = None
        """Reliable watch: seq and position of each unconfirmed event."""
        self._sizes: deque[int] | None = None
        """Bytes of the most recently sent events, one entry per unconfirmed event. `_bytes` is their sum."""
        self._bytes = 0
        self.owner: SubscriptionAddress | None = None
        """Subscription that owns the watch; None if it is shared."""
        self._is_ready = False

    def mark_ready(self) -> None:
        """Report that events may be ready. Called from any thread, possibly with locks held."""
        if not self._is_ready:
            self._is_ready = True
            self._on_ready(self)

    def take_ready(self) -> list[tuple[Stream, EncodedEvent]]:
        """Take all events that are ready and number them."""
        self._is_ready = False
        if self.credit is None:
            return [(self, self.append_event(event)) for event in self.feed.take(None)]
        numbered: list[tuple[Stream, EncodedEvent]] = []
        while (limit := min(self._available_credit(), TAKE_BATCH_EVENTS)) > 0:
            events = self.feed.take(limit)
            for event in events:
                encoded = self.append_event(event)
                self._count(len(encoded.suffix))
                numbered.append((self, encoded))
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
        # Drop the oldest sizes. Deliveries end in any order, so the sum is approximate.
        while self._sizes and len(self._sizes) > out:
            self._bytes -= self._sizes.popleft()
        return self.credit - out if self._bytes < MAX_UNCONFIRMED_BYTES else 0

    def pull(self, limit: int | None) -> list[EncodedEvent]:
        """Take up to `limit` ready events for a pull request, bounded by MAX_UNCONFIRMED_BYTES."""
        pulled: list[EncodedEvent] = []
        size = 0
        while size < MAX_UNCONFIRMED_BYTES and (limit is None or len(pulled) < limit):
            batch_size = TAKE_BATCH_EVENTS if limit is None else min(TAKE_BATCH_EVENTS, limit - len(pulled))
            events = self.feed.take(batch_size)
            numbered = [self.append_event(event) for event in events]
            pulled += numbered
            size += sum(len(event.suffix) for event in numbered)
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

    def append_event(self, event: Event) -> EncodedEvent:
        payload = event.to_dict()
        if "attempt" in event.attributes:
            payload["attempt"] = event.attributes["attempt"]
        encoded = self.append(b'"payload"', to_wire(payload), event.tick)
        reliable = self.feed.options.delivery == "reliable"
        if self.credit is not None and reliable and event.delivery_id is None:
            self.unconfirmed = self.unconfirmed if self.unconfirmed is not None else deque()
            self.unconfirmed.append((encoded.seq, event.position))
        return encoded

    def append(self, name: bytes, body: Any, tick: int) -> EncodedEvent:
        if self.credit is None:
            return super().append(name, body, tick)
        previous = self.history.last_seq
        seq = self.history.last_seq = self.history.evicted_seq = self.event_log.next_seq()
        return EncodedEvent(seq, self.encode_event(seq, previous, tick, name, body))

    def encode_initial(self, event: Event) -> bytes:
        """Encode a snapshot for one subscriber at the stream's current seq. It is the first event of the chain."""
        return self.encode_event(
            self.history.last_seq, None, event.tick, b'"payload"', to_wire(event.to_dict())
        )

    def acknowledge(self, subscriber: SubscriptionAddress, seq: int, now: float) -> None:
        if self.credit is None:
            super().acknowledge(subscriber, seq, now)
            return
        position = None
        while self.unconfirmed and self.unconfirmed[0][0] <= seq:
            _, position = self.unconfirmed.popleft()
        if position is not None:
            self.feed.confirm(position)
        self.mark_ready()
