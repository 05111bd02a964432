"""One subscription at a gateway: decides whether an event is sent now, later, or not at all. No I/O.

Theory of operation. A live subscription is sent every event of its stream. It can be held for several reasons at once:
the client paused it, it has `max_unacked` unacknowledged events, or its client's outbox is full. Held events are not
stored here, because the broker's replay window has them. When the last hold is released and events were missed, the
gateway requests the events after `seq`. Until they arrive, live events are skipped, since the replay contains them. If
the window no longer holds them all, the subscription becomes stale: its client gets one resync-required and no further
events until it resumes or subscribes again. No event is ever dropped silently.

                 hold            release, nothing missed
        LIVE ──────────▶ HELD ──────────────────────────▶ LIVE
          ▲                │  release, events missed
          │  caught up     ▼
          └──────────── CATCHING ── evicted, shed ──▶ STALE ── resume, subscribe ──▶ (a new subscription)
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum, IntFlag

__all__ = ["HoldReason", "Phase", "Subscription"]


class Phase(IntEnum):
    LIVE = 0
    HELD = 1
    CATCHING = 2
    STALE = 3


_LIVE = Phase.LIVE
"""Module constant for `try_send`, which runs for every receiver of every event."""


class HoldReason(IntFlag):
    NONE = 0
    PAUSED = 1
    UNACKED = 2
    OUTBOX_FULL = 4


class Subscription:
    """State of one subscription. Call `try_send` for every event; True means send it."""

    __slots__ = (
        "_unacked",
        "credit_based",
        "holds",
        "id",
        "low_priority",
        "max_unacked",
        "missed",
        "phase",
        "recipient_json",
        "replay_requested",
        "seq",
        "stream",
    )

    def __init__(
        self,
        id: str,
        *,
        stream: int,
        seq: int,
        recipient_json: bytes,
        low_priority: bool = False,
        max_unacked: int | None = None,
        credit_based: bool = False,
    ) -> None:
        self.id = id
        self.stream = stream
        self.seq = seq
        """Seq of the last event sent, or the start seq."""
        self.recipient_json = recipient_json
        """The field `subId` as JSON. Clients that group subscriptions also get `subIds`."""
        self.low_priority = low_priority
        self.max_unacked = max_unacked
        self.credit_based = credit_based
        """True if the broker bounds the events by credit. Such a subscription is never held."""
        self.phase = Phase.LIVE
        self.holds = HoldReason.NONE
        self.missed = False
        self.replay_requested = False
        """True while a replay request is pending."""
        self._unacked: deque[int] | None = deque() if max_unacked is not None else None

    def try_send(self, seq: int) -> bool:
        """Return True if the event must be sent now."""
        if self.phase is not _LIVE:
            self.missed = True
            return False
        if seq <= self.seq:
            return False
        if self._unacked is not None:
            self.mark_sent(seq)
        else:
            self.seq = seq
        return True

    def try_send_range(self, first: int, last: int) -> bool:
        """Return True if all events from `first` to `last` must be sent now. If False, the state is unchanged."""
        if self.phase is not _LIVE or first <= self.seq or self._unacked is not None:
            return False
        self.seq = last
        return True

    def mark_sent(self, seq: int) -> None:
        self.seq = seq
        if self._unacked is not None and self.max_unacked is not None:
            self._unacked.append(seq)
            if len(self._unacked) >= self.max_unacked:
                self.hold(HoldReason.UNACKED)

    def on_ack(self, seq: int) -> bool:
        """Record that the client has everything up to `seq`. Return True if a replay must be requested."""
        if self._unacked is None or self.max_unacked is None:
            return False
        while self._unacked and self._unacked[0] <= seq:
            self._unacked.popleft()
        return len(self._unacked) < self.max_unacked and self.release(HoldReason.UNACKED)

    def hold(self, reason: HoldReason) -> None:
        if self.phase is Phase.STALE or self.credit_based:
            return
        self.holds |= reason
        if self.phase is Phase.LIVE:
            self.phase = Phase.HELD

    def release(self, reason: HoldReason) -> bool:
        """Remove a hold reason. Return True if a replay must be requested now."""
        self.holds &= ~reason
        if self.holds or self.phase is not Phase.HELD:
            return False
        if not self.missed:
            self.phase = Phase.LIVE
            return False
        return self._request_replay()

    def await_replay(self) -> None:
        """Wait for a replay that the broker sends without a request, after a resume."""
        self.phase, self.replay_requested = Phase.CATCHING, True

    def _request_replay(self) -> bool:
        self.phase, self.missed = Phase.CATCHING, False
        if self.replay_requested:
            return False
        self.replay_requested = True
        return True

    def on_replay(self, *, more: bool) -> bool:
        """Handle the end of a replay chunk; `mark_sent` was called for each event. Return True to request more."""
        self.replay_requested = False
        if self.phase is not Phase.CATCHING:
            return False
        if self.holds:
            self.phase, self.missed = Phase.HELD, self.missed or more
            return False
        if more:
            return self._request_replay()
        self.phase, self.missed = Phase.LIVE, False
        return False

    def mark_stale(self) -> bool:
        """Mark the subscription as stale. Return True if its client must still be notified."""
        if self.phase is Phase.STALE:
            return False
        self.phase = Phase.STALE
        return True

    def validate(self) -> None:
        """Raise AssertionError if the state is inconsistent. For tests."""
        assert (self.phase is Phase.HELD) <= bool(self.holds)
        assert (self.phase is Phase.LIVE) <= (not self.holds and not self.missed)
        assert (self.phase is Phase.CATCHING) <= self.replay_requested
