"""Rate limits of a source: events and bytes per second, with a burst of one second."""

from __future__ import annotations

from collections.abc import Mapping

from vedette.clock import Clock
from vedette.errors import SourceError

__all__ = ["RateLimiter"]


class RateLimiter:
    """Two token buckets, one for events and one for bytes. Each holds at most one second of its rate."""

    def __init__(self, events_per_second: float, bytes_per_second: float, clock: Clock) -> None:
        self._rates = (events_per_second, bytes_per_second)
        self._levels = list(self._rates)
        self._clock = clock
        self._filled_at = clock.monotonic()

    @classmethod
    def from_options(cls, options: Mapping[str, str], clock: Clock) -> RateLimiter:
        """Read `events_per_second` and `bytes_per_second`. A missing option means no limit.

        Raises E6101 for an invalid value.
        """
        rates: list[float] = []
        for name in ("events_per_second", "bytes_per_second"):
            try:
                rates.append(float(options.get(name, "inf")))
            except ValueError:
                rates.append(-1.0)
            if not rates[-1] > 0:
                raise SourceError(
                    "E6101",
                    f"{name} must be a number above 0, not {options[name]!r}",
                    fields={"option": name},
                )
        return cls(rates[0], rates[1], clock)

    def delay_after(self, events: int, size_bytes: int) -> float:
        """Record what was read. Returns the seconds to wait before reading more."""
        now = self._clock.monotonic()
        waits = [0.0]
        for bucket, (rate, taken) in enumerate(zip(self._rates, (events, size_bytes), strict=True)):
            if rate == float("inf"):
                continue
            level = min(rate, self._levels[bucket] + rate * (now - self._filled_at))
            self._levels[bucket] = level - taken
            waits.append(-self._levels[bucket] / rate)
        self._filled_at = now
        return max(waits)
