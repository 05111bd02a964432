"""The latest events of a database, bounded by time, count and bytes, from which clients resume.

Theory of operation. One window per database holds the encoded events of all its streams in seq order. When any bound is
exceeded, the oldest event is evicted, whichever stream it belongs to (evicting by use would leave gaps). Each stream
remembers the seq of its last evicted event, and can be resumed from a seq if and only if no later event was evicted. So
a quiet stream stays resumable while a busy one rolls over, and there is never a silent gap.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from vedette.gateway.limits import ReplayLimits

__all__ = ["ReplayWindow", "RetainedEvent", "StreamHistory"]


class RetainedEvent(NamedTuple):
    seq: int
    suffix: bytes
    """The encoded event from its partition field on. The part before it names the receiver."""
    appended_at: float
    """Monotonic time at which the event was added."""


@dataclass(slots=True)
class StreamHistory:
    """The part of one stream in the window."""

    evicted_seq: int
    """Last seq that can no longer be replayed; at first the stream's start."""
    last_seq: int
    events: deque[RetainedEvent] | tuple[RetainedEvent, ...] = ()
    """Oldest first. A tuple saves memory: most streams hold at most one event, and a deque takes 760 bytes."""

    def can_replay_from(self, seq: int) -> bool:
        """Return True if every event after `seq` is retained and `seq` is a position of this stream."""
        return self.evicted_seq <= seq <= self.last_seq

    def events_after(self, seq: int) -> list[RetainedEvent]:
        """Return the events after `seq`, oldest first."""
        missed: list[RetainedEvent] = []
        for event in reversed(self.events):
            if event.seq <= seq:
                break
            missed.append(event)
        missed.reverse()
        return missed


class ReplayWindow:
    """The events of all streams of one database, oldest first."""

    def __init__(self, limits: ReplayLimits) -> None:
        self.limits = limits
        self.bytes = 0
        self._events = 0
        self._order: deque[tuple[StreamHistory, int]] = deque()
        """All events in seq order. Entries of events that were already evicted are skipped."""

    def __len__(self) -> int:
        return self._events

    def add(self, history: StreamHistory, seq: int, suffix: bytes, now: float) -> None:
        """Add an event and evict what exceeds the bounds."""
        if seq <= history.last_seq:
            raise ValueError(f"seq {seq} does not follow {history.last_seq}")
        event, kept = RetainedEvent(seq, suffix, now), history.events
        if type(kept) is deque:
            kept.append(event)
        else:
            history.events = deque((*kept, event)) if kept else (event,)
        history.last_seq = seq
        self._order.append((history, seq))
        self._events += 1
        self.bytes += len(suffix)
        self.expire(now)
        if len(self._order) > 2 * self._events + 1000:
            self._order = deque((h, s) for h, s in self._order if h.events and h.events[0].seq <= s)

    def expire(self, now: float) -> None:
        """Evict events that exceed a bound."""
        limits, order = self.limits, self._order
        oldest = now - limits.seconds
        while order:
            history, seq = order[0]
            first = history.events[0] if history.events else None
            if first is not None and first.seq <= seq:
                over = self._events > limits.events or self.bytes > limits.bytes
                if not over and first.appended_at >= oldest:
                    return
                self._evict_oldest(history)
            order.popleft()

    def discard_up_to(self, history: StreamHistory, seq: int) -> None:
        """Evict events that every possible reader already has."""
        while history.events and history.events[0].seq <= seq:
            self._evict_oldest(history)

    def remove(self, history: StreamHistory) -> None:
        """Evict all events of a stream that has ended."""
        while history.events:
            self._evict_oldest(history)

    def _evict_oldest(self, history: StreamHistory) -> None:
        kept = history.events
        if type(kept) is deque and len(kept) > 1:
            event = kept.popleft()
        else:
            event, history.events = kept[0], ()
        history.evicted_seq = event.seq
        self._events -= 1
        self.bytes -= len(event.suffix)
