"""Rate-limited warnings: at most one per subject in ten seconds, with the number of suppressed ones.

Used for slow filters, changes that match very many subscriptions, and retried tasks.
"""

from __future__ import annotations

import logging
from typing import Any

from vedette.clock import Clock, SystemClock

__all__ = ["LARGE_MATCH_COUNT", "SLOW_FILTER_MS", "SampledLog", "log_sampled"]

log = logging.getLogger("vedette.pipeline.sampled_log")

PERIOD_SECONDS = 10.0
MAX_SUBJECTS = 1_000
SLOW_FILTER_MS = 20.0
"""Threshold for all pairs of one shape in one batch."""
LARGE_MATCH_COUNT = 1_000
"""Threshold for the subscriptions that match one change."""


class SampledLog:
    """One per worker process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._last: dict[tuple[str, str], tuple[float, int]] = {}
        """Time of the last record by subject, and the number suppressed since."""

    def log(self, action: str, subject: str, text: str, **fields: Any) -> bool:
        """Log a warning unless the same was logged recently. Return True if it was logged."""
        key, now = (action, subject), self._clock.monotonic()
        last, left_out = self._last.get(key, (None, 0))
        if last is not None and now - last < PERIOD_SECONDS:
            self._last[key] = (last, left_out + 1)
            return False
        if len(self._last) >= MAX_SUBJECTS:
            self._last.clear()
        self._last[key] = (now, 0)
        log.warning("%s", text, extra={"action": action, "subject": subject, "left_out": left_out, **fields})
        return True


_worker = SampledLog()


def log_sampled(action: str, subject: str, text: str, **fields: Any) -> bool:
    """Log in this process. A module function, because Spark pickles what tasks refer to."""
    return _worker.log(action, subject, text, **fields)
