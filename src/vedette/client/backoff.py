"""How long to wait before the next try: longer each time, and never together with everybody else. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

__all__ = ["Backoff"]


@dataclass(slots=True)
class Backoff:
    """Full jitter: anything between nothing and a bound that doubles."""

    random: Random
    base_seconds: float = 0.2
    cap_seconds: float = 15.0
    tries: int = 0

    def next_delay(self) -> float:
        """The wait before the next try, in seconds."""
        bound = min(self.cap_seconds, self.base_seconds * 2 ** min(self.tries, 16))
        self.tries += 1
        return self.random.uniform(0, bound)

    def reset(self) -> None:
        self.tries = 0
