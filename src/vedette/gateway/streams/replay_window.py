"""What can still be replayed: the latest outcomes of a partition group, bounded by time, count and bytes.

Theory of operation. One window per database holds the events of all its streams in the order of their seq, as the bytes
that were sent. Whatever bound is passed first, the oldest event leaves, whoever's it was (evicting by use would punch
holes). Each stream remembers the seq of the last event it lost; a stream can be resumed from a seq exactly when nothing
after that seq is lost. So a quiet stream stays resumable while a loud one rolls over, and never is there a silent gap.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ReplayLimits", "ReplayWindow", "RetainedEvent", "StreamHistory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLimits:
    seconds: float = 180.0
    events: int = 10_000
    bytes: int = 32 * 1024 * 1024


class RetainedEvent(NamedTuple):
    seq: int
    tail: bytes
    """The event from its partition on; the part before names the receiver."""
    at: float
    """When it was told, on the monotonic scale."""


@dataclass(slots=True)
class StreamHistory:
    """One stream's part of the window."""

    evicted_seq: int
    """The last seq that can no longer be replayed; at first where the stream began."""
    last_seq: int
    events: deque[RetainedEvent] | tuple[RetainedEvent, ...] = ()
    """Oldest first; most streams are quiet and hold nothing, or one event: there is no deque for that."""

    def can_replay_from(self, seq: int) -> bool:
        """Whether everything after `seq` is here, and `seq` is a place this stream has been at."""
        return self.evicted_seq <= seq <= self.last_seq

    def events_after(self, seq: int) -> list[RetainedEvent]:
        """What came after `seq`, oldest first."""
        missed: list[RetainedEvent] = []
        for event in reversed(self.events):
            if event.seq <= seq:
                break
            missed.append(event)
        missed.reverse()
        return missed


class ReplayWindow:
    """The events of all streams of one partition group, oldest first."""

    def __init__(self, bounds: ReplayLimits) -> None:
        self.bounds = bounds
        self.bytes = 0
        self._events = 0
        self._order: deque[tuple[StreamHistory, int]] = deque()
        """Every event in the order of its seq; those that left before their turn are passed over."""

    def __len__(self) -> int:
        return self._events

    def add(self, history: StreamHistory, seq: int, tail: bytes, now: float) -> None:
        """Keep what was told just now; whatever no longer fits leaves."""
        if seq <= history.last_seq:
            raise ValueError(f"seq {seq} does not follow {history.last_seq}")
        event, kept = RetainedEvent(seq, tail, now), history.events
        if type(kept) is deque:
            kept.append(event)
        else:
            history.events = deque((*kept, event)) if kept else (event,)
        history.last_seq = seq
        self._order.append((history, seq))
        self._events += 1
        self.bytes += len(tail)
        self.expire(now)
        if len(self._order) > 2 * self._events + 1000:
            self._order = deque((h, s) for h, s in self._order if h.events and h.events[0].seq <= s)

    def expire(self, now: float) -> None:
        """Let go of what is beyond a bound."""
        bounds, order = self.bounds, self._order
        oldest = now - bounds.seconds
        while order:
            history, seq = order[0]
            first = history.events[0] if history.events else None
            if first is not None and first.seq <= seq:
                over = self._events > bounds.events or self.bytes > bounds.bytes
                if not over and first.at >= oldest:
                    return
                self._evict_oldest(history)
            order.popleft()

    def discard_up_to(self, history: StreamHistory, seq: int) -> None:
        """Everyone who could ask for these events has them: they need not be kept."""
        while history.events and history.events[0].seq <= seq:
            self._evict_oldest(history)

    def remove(self, history: StreamHistory) -> None:
        """The stream has ended."""
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
        self.bytes -= len(event.tail)
