"""The state of group commit: queued commits, the current flush, the durable sequence. No threads, no I/O.

Theory of operation. Commits are submitted in sequence order and queued. The leader of a flush takes all of them
(`begin_flush`), makes them durable outside, and reports the result (`complete_flush`, `fail_flush`). There is one flush
at a time. After a failed flush no commit is accepted, because the contents of the disk are unknown until the store is
read again.

                  submit                      submit
                 ┌──────┐                    ┌──────┐
                 ▼      │   begin_flush      ▼      │
                 idle ──┴─────────────────▶ flushing┘
                  │ ▲     complete_flush      │
             close│ └─────────────────────────┤ fail_flush
                  ▼                           ▼
                closed                      failed  (stays failed when closed)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from vedette.errors import StoreError

__all__ = ["TRANSITIONS", "FlushEvent", "FlushQueue", "FlushState"]

Commit = TypeVar("Commit")


class FlushState(StrEnum):
    IDLE = "idle"
    FLUSHING = "flushing"
    FAILED = "failed"
    CLOSED = "closed"


class FlushEvent(StrEnum):
    SUBMIT = "submit"
    BEGIN = "begin"
    DONE = "done"
    FAIL = "fail"
    CLOSE = "close"


TRANSITIONS: Mapping[tuple[FlushState, FlushEvent], FlushState] = {
    (FlushState.IDLE, FlushEvent.SUBMIT): FlushState.IDLE,
    (FlushState.FLUSHING, FlushEvent.SUBMIT): FlushState.FLUSHING,
    (FlushState.IDLE, FlushEvent.BEGIN): FlushState.FLUSHING,
    (FlushState.FLUSHING, FlushEvent.DONE): FlushState.IDLE,
    (FlushState.FLUSHING, FlushEvent.FAIL): FlushState.FAILED,
    (FlushState.IDLE, FlushEvent.CLOSE): FlushState.CLOSED,
    (FlushState.FAILED, FlushEvent.CLOSE): FlushState.FAILED,
    (FlushState.CLOSED, FlushEvent.CLOSE): FlushState.CLOSED,
}


class FlushQueue(Generic[Commit]):
    """Sequences: durable ≤ flushing ≤ submitted. Sequences passed to `submit` increase; two commits never share one."""

    __slots__ = ("_history", "durable", "error", "flushing", "queued", "state", "submitted")

    def __init__(self, sequence: int) -> None:
        self.state = FlushState.IDLE
        self.durable = sequence
        """The highest sequence on disk."""
        self.flushing = sequence
        """The highest sequence of the current or last flush."""
        self.submitted = sequence
        self.queued: list[Commit] = []
        """Commits of the next flush, in order."""
        self.error: StoreError | None = None
        self._history: deque[str] = deque(maxlen=16)

    def submit(self, sequence: int, commit: Commit) -> None:
        self._transition(FlushEvent.SUBMIT)
        if sequence <= self.submitted:
            raise ValueError(
                f"sequence {sequence} was submitted after sequence {self.submitted}: sequences must increase"
            )
        self.submitted = sequence
        self.queued.append(commit)

    def begin_flush(self) -> list[Commit]:
        """Take all queued commits for one flush."""
        self._transition(FlushEvent.BEGIN)
        assert self.queued, "a flush of nothing"
        commits, self.queued = self.queued, []
        self.flushing = self.submitted
        return commits

    def complete_flush(self) -> None:
        self._transition(FlushEvent.DONE)
        self.durable = self.flushing

    def fail_flush(self, error: StoreError) -> None:
        self._transition(FlushEvent.FAIL)
        self.error = error
        self.queued = []

    def close(self) -> None:
        self._transition(FlushEvent.CLOSE)

    @property
    def can_flush(self) -> bool:
        return self.state is FlushState.IDLE and bool(self.queued)

    def validate(self) -> None:
        """Check the invariants; called by tests."""
        assert self.durable <= self.flushing <= self.submitted, self
        assert (self.error is not None) == (self.state is FlushState.FAILED), self
        assert not self.queued or self.submitted > self.flushing, self
        if self.state in {FlushState.IDLE, FlushState.CLOSED}:
            assert self.durable == self.flushing, self
            assert bool(self.queued) == (self.submitted > self.durable), self
        if self.state is FlushState.CLOSED:
            assert not self.queued, self

    def __repr__(self) -> str:
        return (
            f"<FlushLedger {self.state}: durable {self.durable}, flushing {self.flushing}, submitted {self.submitted}, "
            f"{len(self.queued)} waiting; last moves: {', '.join(self._history) or 'none'}>"
        )

    def _transition(self, event: FlushEvent) -> None:
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise RuntimeError(f"{event} makes no sense now: {self!r}")
        if event is not FlushEvent.SUBMIT:
            self._history.append(event)
        self.state = state
