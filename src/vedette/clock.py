"""Time and randomness enter Vedette here and nowhere else, so that tests can hold both in their hands."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "system_random"]


class Clock(Protocol):
    """Where the present comes from. `monotonic` measures spans, `now` names moments."""

    def now(self) -> datetime:
        """The present moment in UTC, in whole milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1000, UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def system_random() -> random.Random:
    """A source of randomness seeded by the operating system."""
    return random.Random()  # noqa: S311 - jitter and sampling, never secrets
