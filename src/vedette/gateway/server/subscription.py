"""One subscription at a gateway: whether an event goes out now, later, or not at all.

Theory of operation. A live subscription is told every event of its stream. It can be held for several reasons at once
(the client paused it; as many events as it allows are not acknowledged; its client's outbox is clogged). What it is not
told while held is not kept here: the replay window at the engine has it. When the last hold goes, and it missed
something, it asks for what came after `seq`; until that has come, live events are passed over, since they are in the
answer. When the window no longer has it all the subscription is stale: its client is told, once, and nothing more goes
out until the client resumes or subscribes again. Never is an event left out in silence.

                 hold            release, nothing missed
        LIVE ──────────▶ HELD ──────────────────────────▶ LIVE
          ▲                │  release, something missed
          │  caught up     ▼
          └──────────── CATCHING ── lost, shed ──▶ STALE ── resume, subscribe ──▶ (a new subscription)
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
"""For `offer`, which is called for every receiver of every event."""


class HoldReason(IntFlag):
    NONE = 0
    PAUSED = 1
    UNACKED = 2
    OUTBOX_FULL = 4


class Subscription:
    """`offer` is asked for every event; True means: send it."""

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
        key: bytes,
        low: bool = False,
        max_unacked: int | None = None,
        credited: bool = False,
    ) -> None:
        self.id = id
        self.stream = stream
        self.seq = seq
        """The last seq that was sent, or where it began."""
        self.recipient_json = key
        """How its events name it: the JSON of `subId`, and of `subIds` when its client groups them."""
        self.low_priority = low
        self.max_unacked = max_unacked
        self.credit_based = credited
        """Bounded by the engine, which hands out only so much: everything is sent at once."""
        self.phase = Phase.LIVE
        self.holds = HoldReason.NONE
        self.missed = False
        self.replay_requested = False
        """Whether a replay is under way."""
        self._unacked: deque[int] | None = deque() if max_unacked is not None else None

    def try_send(self, seq: int) -> bool:
        """Whether this event of the stream is to be sent now."""
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
        """Whether these events of the stream, and those between, are all to be sent now; else nothing has changed."""
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
        """The client has everything up to here; whether a replay is to be asked for."""
        if self._unacked is None or self.max_unacked is None:
            return False
        while self._unacked and self._unacked[0] <= seq:
            self._unacked.popleft()
        return len(self._unacked) < self.max_unacked and self.release(HoldReason.UNACKED)

    def hold(self, why: HoldReason) -> None:
        if self.phase is Phase.STALE or self.credit_based:
            return
        self.holds |= why
        if self.phase is Phase.LIVE:
            self.phase = Phase.HELD

    def release(self, why: HoldReason) -> bool:
        """One reason less; whether a replay is to be asked for now."""
        self.holds &= ~why
        if self.holds or self.phase is not Phase.HELD:
            return False
        if not self.missed:
            self.phase = Phase.LIVE
            return False
        return self._request_replay()

    def await_replay(self) -> None:
        """It begins with a replay that the engine sends without being asked: a resume."""
        self.phase, self.replay_requested = Phase.CATCHING, True

    def _request_replay(self) -> bool:
        self.phase, self.missed = Phase.CATCHING, False
        if self.replay_requested:
            return False
        self.replay_requested = True
        return True

    def on_replay(self, *, more: bool) -> bool:
        """A replay has come, `sent` was called for each of its events; whether to ask for more."""
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
        """It cannot go on; whether its client is still to be told."""
        if self.phase is Phase.STALE:
            return False
        self.phase = Phase.STALE
        return True

    def validate(self) -> None:
        """Raise AssertionError unless the parts agree; for tests."""
        assert (self.phase is Phase.HELD) <= bool(self.holds)
        assert (self.phase is Phase.LIVE) <= (not self.holds and not self.missed)
        assert (self.phase is Phase.CATCHING) <= self.replay_requested
