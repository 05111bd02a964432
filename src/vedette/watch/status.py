"""The life of a watch, as a table.

Theory of operation. A watch is active from its creation. Paused, it goes on matching, but hands nothing out: events
wait in its buffer. Cancelled is final; the watch is kept for those who ask (`_Watch`). PAUSE and RESUME are idempotent
on what is already so, CANCEL always; whatever else is asked of a cancelled watch is E8002.

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
    """Where the event leads, or None when it has no place there (the caller says E8002)."""
    return TRANSITIONS.get((status, event))
