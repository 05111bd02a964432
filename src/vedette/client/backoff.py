"""Reconnect delays: exponential backoff with full jitter. No I/O.

Written here because whether to reconnect depends on the close code, which retry libraries do not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

__all__ = ["Backoff"]


@dataclass(slots=True)
class Backoff:
    """Full jitter: a random delay between 0 and a bound that doubles with each try."""

    random: Random
    base_seconds: float = 0.2
    cap_seconds: float = 15.0
    tries: int = 0

    def next_delay(self) -> float:
        """Return the delay before the next try, in seconds."""
        bound = min(self.cap_seconds, self.base_seconds * 2 ** min(self.tries, 16))
        self.tries += 1
        return self.random.uniform(0, bound)

    def reset(self) -> None:
        self.tries = 0
