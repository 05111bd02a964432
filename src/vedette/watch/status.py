"""The life cycle of a watch, as a table.

Theory of operation. A watch is active from its creation. A paused watch keeps matching but delivers nothing: events
wait in its buffer. Cancelled is final; the watch stays readable (`_Watch`) for a while. PAUSE and RESUME are
idempotent, CANCEL always succeeds; any other operation on a cancelled watch raises E8002.

           pause                cancel
   active ───────▶ paused ─────────────────▶ cancelled
      ▲  ◀─────────  │                          ▲
      │    resume    │                          │
      └── resume     └── pause        cancel, overflow, fail
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["TRANSITIONS", "StatusEvent", "WatchStatus", "next_status"]


class WatchStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class StatusEvent(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    OVERFLOW = "overflow"
    FAIL = "fail"
    ALTER = "alter"


TRANSITIONS: Mapping[tuple[WatchStatus, StatusEvent], WatchStatus] = {
    (WatchStatus.ACTIVE, StatusEvent.PAUSE): WatchStatus.PAUSED,
    (WatchStatus.PAUSED, StatusEvent.PAUSE): WatchStatus.PAUSED,
    (WatchStatus.ACTIVE, StatusEvent.RESUME): WatchStatus.ACTIVE,
    (WatchStatus.PAUSED, StatusEvent.RESUME): WatchStatus.ACTIVE,
    (WatchStatus.ACTIVE, StatusEvent.CANCEL): WatchStatus.CANCELLED,
    (WatchStatus.PAUSED, StatusEvent.CANCEL): WatchStatus.CANCELLED,
    (WatchStatus.CANCELLED, StatusEvent.CANCEL): WatchStatus.CANCELLED,
    (WatchStatus.ACTIVE, StatusEvent.OVERFLOW): WatchStatus.CANCELLED,
    (WatchStatus.PAUSED, StatusEvent.OVERFLOW): WatchStatus.CANCELLED,
    (WatchStatus.ACTIVE, StatusEvent.FAIL): WatchStatus.CANCELLED,
    (WatchStatus.PAUSED, StatusEvent.FAIL): WatchStatus.CANCELLED,
    (WatchStatus.ACTIVE, StatusEvent.ALTER): WatchStatus.ACTIVE,
    (WatchStatus.PAUSED, StatusEvent.ALTER): WatchStatus.PAUSED,
}


def next_status(status: WatchStatus, event: StatusEvent) -> WatchStatus | None:
    """The next status, or None if the event is not allowed (the caller raises E8002)."""
    return TRANSITIONS.get((status, event))
