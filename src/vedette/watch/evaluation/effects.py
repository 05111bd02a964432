"""What one commit produces: deltas for buffers, windows and triggers, and failed watches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vedette.errors import VedetteError
from vedette.language.compile.execution_context import Row
from vedette.values import timestamp_from_ms
from vedette.watch.buffer import AppendResult
from vedette.watch.delta import ADDED, CHANGED, REMOVED, Delta
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch, WatchDetails

__all__ = ["CommitEffects", "TriggerEffects", "row_delta"]

_CANCELLED, _OVERFLOW = WatchStatus.CANCELLED, AppendResult.OVERFLOW


class CommitEffects:
    """What one commit causes: watches with new events, overflows, failures, and triggers to run."""

    def __init__(self, tick: int, sequence: int, now_ms: int) -> None:
        self.tick, self.sequence, self.now_ms = tick, sequence, now_ms
        self.evaluated_at_ms = now_ms
        """When the commit was evaluated. The transaction may have begun long before."""
        self.notified: dict[int, Watch] = {}
        """Watches with new events."""
        self.overflowed: list[Watch] = []
        self.failures: dict[int, tuple[Watch, VedetteError]] = {}
        """Watches that could not be evaluated, with the error."""
        self.is_replay = False
        """True while replaying the log. Triggers that ran in the original commit are not run again."""
        self.triggers: list[tuple[Watch, Row]] = []
        self.sample = 0
        """The number of a watch whose deltas are collected for the self-check."""
        self.sampled: list[Delta] = []

    def add_delta(self, watch: Watch, delta: Delta, row: Row | None) -> None:
        """Add an event for the watch. An overflow is recorded for the caller, which cancels the watch."""
        if watch.status is _CANCELLED:
            return
        if watch.number == self.sample:
            self.sampled.append(delta)
        details = watch.known_details
        if details is not None and not self._route(watch, details, delta, row):
            return
        if watch.shape.columns:
            self.append_event(watch, delta)

    def _route(self, watch: Watch, details: WatchDetails, delta: Delta, row: Row | None) -> bool:
        """Handle triggers, windows and lagging readers. Return True if the event goes to the buffer as well."""
        if details.actions is not None and delta.type == ADDED and row is not None:
            self.triggers.append((watch, row))
        if not watch.shape.columns or (details.followed_sequence is not None and not self.is_replay):
            return False  # replayed from the log when the reader continues
        if details.window is None:
            return True
        if not watch.shape.aggregates:
            details.window.collect(delta, self.tick, timestamp_from_ms(self.evaluated_at_ms))
        return False

    def add_failure(self, watch: Watch, error: VedetteError) -> None:
        """Record that the watch cannot be evaluated. The caller ends it."""
        self.failures.setdefault(watch.number, (watch, error))

    def append_event(self, watch: Watch, delta: Delta) -> None:
        """Append the event to the watch's buffer."""
        if watch.append_event(delta, self.tick, self.sequence, self.now_ms) is _OVERFLOW:
            self.overflowed.append(watch)
        self.notified[watch.number] = watch


class TriggerEffects(CommitEffects):
    """Collects trigger firings only; appends no events."""

    def append_event(self, watch: Watch, delta: Delta) -> None:
        pass


def row_delta(
    shape: WatchShape, identity: Any, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> Iterable[Delta]:
    """Yield the delta between two rows of one identity; None where the row does not exist."""
    if old is None and new is not None:
        yield Delta(ADDED, new, None, identity)
    elif new is None and old is not None:
        yield Delta(REMOVED, old, None, identity)
    elif new is not None and old is not None and shape.rows_differ(old, new):
        yield Delta(CHANGED, new, old, identity)
