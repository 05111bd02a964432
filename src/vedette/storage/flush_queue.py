"""The bookkeeping of group commit: what waits, what is being flushed, what is durable. No threads, no I/O.

Theory of operation. Commits are submitted in tick order and wait in a queue. Whoever may flush takes all of them
(`begin`), makes them durable outside, and reports how that ended (`done`, `fail`). There is one flush at a time. After
a failed flush nothing is accepted any more: what the disk holds is known only after reading it again.

                  submit                      submit
                 ┌──────┐                    ┌──────┐
                 ▼      │      begin         ▼      │
                 idle ──┴─────────────────▶ flushing┘
                  │ ▲         done            │
             close│ └─────────────────────────┤ fail
                  ▼                           ▼
                closed                      failed  (stays failed when closed)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from vedette.errors import StoreError

__all__ = ["TRANSITIONS", "FlushEvent", "FlushLedger", "FlushState"]

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


class FlushLedger(Generic[Commit]):
    """Ticks: durable ≤ flushing ≤ submitted. Ticks given to `submit` rise; two commits never share one."""

    __slots__ = ("_history", "durable", "error", "flushing", "state", "submitted", "waiting")

    def __init__(self, tick: int) -> None:
        self.state = FlushState.IDLE
        self.durable = tick
        """The highest tick that is on the disk."""
        self.flushing = tick
        """The highest tick in the flush under way, or of the last one."""
        self.submitted = tick
        self.waiting: list[Commit] = []
        """Commits that the next flush takes, in tick order."""
        self.error: StoreError | None = None
        self._history: deque[str] = deque(maxlen=16)

    def submit(self, tick: int, commit: Commit) -> None:
        self._move(FlushEvent.SUBMIT)
        if tick <= self.submitted:
            raise ValueError(
                f"tick {tick} was submitted after tick {self.submitted}: every commit needs its own"
            )
        self.submitted = tick
        self.waiting.append(commit)

    def begin(self) -> list[Commit]:
        """Everything that waits, for one flush."""
        self._move(FlushEvent.BEGIN)
        assert self.waiting, "a flush of nothing"
        commits, self.waiting = self.waiting, []
        self.flushing = self.submitted
        return commits

    def done(self) -> None:
        self._move(FlushEvent.DONE)
        self.durable = self.flushing

    def fail(self, error: StoreError) -> None:
        self._move(FlushEvent.FAIL)
        self.error = error
        self.waiting = []

    def close(self) -> None:
        self._move(FlushEvent.CLOSE)

    @property
    def can_begin(self) -> bool:
        return self.state is FlushState.IDLE and bool(self.waiting)

    def validate(self) -> None:
        """What holds after every move; called by the tests."""
        assert self.durable <= self.flushing <= self.submitted, self
        assert (self.error is not None) == (self.state is FlushState.FAILED), self
        assert not self.waiting or self.submitted > self.flushing, self
        if self.state in {FlushState.IDLE, FlushState.CLOSED}:
            assert self.durable == self.flushing, self
            assert bool(self.waiting) == (self.submitted > self.durable), self
        if self.state is FlushState.CLOSED:
            assert not self.waiting, self

    def __repr__(self) -> str:
        return (
            f"<FlushLedger {self.state}: durable {self.durable}, flushing {self.flushing}, submitted {self.submitted}, "
            f"{len(self.waiting)} waiting; last moves: {', '.join(self._history) or 'none'}>"
        )

    def _move(self, event: FlushEvent) -> None:
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise RuntimeError(f"{event} makes no sense now: {self!r}")
        if event is not FlushEvent.SUBMIT:
            self._history.append(event)
        self.state = state
