"""Rate limits of a source: events and bytes per second, with a burst of one second."""

from __future__ import annotations

from collections.abc import Mapping

from vedette.clock import Clock
from vedette.errors import SourceError

__all__ = ["TokenBucket"]


class TokenBucket:
    """Two token buckets. Taking more than their content returns a waiting time."""

    def __init__(self, events_per_second: float, bytes_per_second: float, clock: Clock) -> None:
        self._rates = (events_per_second, bytes_per_second)
        self._levels = list(self._rates)
        self._clock = clock
        self._at = clock.monotonic()

    @classmethod
    def from_options(cls, options: Mapping[str, str], clock: Clock) -> TokenBucket:
        """Create from `events_per_second` and `bytes_per_second`; without them there is no limit."""
        rates: list[float] = []
        for name in ("events_per_second", "bytes_per_second"):
            try:
                rates.append(float(options.get(name, "inf")))
            except ValueError:
                rates.append(-1.0)
            if not rates[-1] > 0:
                raise SourceError(
                    "E6101", f"{name} is a number above 0, not {options[name]!r}", fields={"option": name}
                )
        return cls(rates[0], rates[1], clock)

    def pause(self, events: int, size: int) -> float:
        """Take this amount and return the seconds to wait before taking more."""
        now = self._clock.monotonic()
        waits = [0.0]
        for place, (rate, taken) in enumerate(zip(self._rates, (events, size), strict=True)):
            if rate == float("inf"):
                continue
            filled = min(rate, self._levels[place] + rate * (now - self._at))
            self._levels[place] = filled - taken
            waits.append(-self._levels[place] / rate)
        self._at = now
        return max(waits)
