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

__all__ = ["TRANSITIONS", "WatchEventKind", "WatchStatus", "next_status"]


class WatchStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class WatchEventKind(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    OVERFLOW = "overflow"
    FAIL = "fail"
    ALTER = "alter"


TRANSITIONS: Mapping[tuple[WatchStatus, WatchEventKind], WatchStatus] = {
    (WatchStatus.ACTIVE, WatchEventKind.PAUSE): WatchStatus.PAUSED,
    (WatchStatus.PAUSED, WatchEventKind.PAUSE): WatchStatus.PAUSED,
    (WatchStatus.ACTIVE, WatchEventKind.RESUME): WatchStatus.ACTIVE,
    (WatchStatus.PAUSED, WatchEventKind.RESUME): WatchStatus.ACTIVE,
    (WatchStatus.ACTIVE, WatchEventKind.CANCEL): WatchStatus.CANCELLED,
    (WatchStatus.PAUSED, WatchEventKind.CANCEL): WatchStatus.CANCELLED,
    (WatchStatus.CANCELLED, WatchEventKind.CANCEL): WatchStatus.CANCELLED,
    (WatchStatus.ACTIVE, WatchEventKind.OVERFLOW): WatchStatus.CANCELLED,
    (WatchStatus.PAUSED, WatchEventKind.OVERFLOW): WatchStatus.CANCELLED,
    (WatchStatus.ACTIVE, WatchEventKind.FAIL): WatchStatus.CANCELLED,
    (WatchStatus.PAUSED, WatchEventKind.FAIL): WatchStatus.CANCELLED,
    (WatchStatus.ACTIVE, WatchEventKind.ALTER): WatchStatus.ACTIVE,
    (WatchStatus.PAUSED, WatchEventKind.ALTER): WatchStatus.PAUSED,
}


def next_status(status: WatchStatus, event: WatchEventKind) -> WatchStatus | None:
    """Where the event leads, or None when it has no place there (the caller says E8002)."""
    return TRANSITIONS.get((status, event))
