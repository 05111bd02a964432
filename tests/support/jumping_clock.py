"""A real clock that a test can set forward."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from vedette.clock import SystemClock, Timer

__all__ = ["JumpingClock"]


class JumpingClock(SystemClock):
    """The machine's clock plus offsets.

    Use it where a server needs time that passes by itself, and the test decides when a long span has passed. An
    appointment made before a jump runs at its original real moment.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wall_offset_seconds = 0.0
        self._monotonic_offset_seconds = 0.0

    def jump(self, seconds: float) -> None:
        """Set `now` and `monotonic` forward."""
        self.jump_wall(seconds)
        self._monotonic_offset_seconds += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set only `now` forward, so that no heartbeat or other timer falls due."""
        self._wall_offset_seconds += seconds

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._wall_offset_seconds)

    def monotonic(self) -> float:
        return super().monotonic() + self._monotonic_offset_seconds

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        return super().call_at(due - self._monotonic_offset_seconds, callback)
