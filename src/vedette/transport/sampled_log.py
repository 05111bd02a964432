"""Logs that are worth a look and come too often: one in ten seconds for each subject, with how many were left out.

What is logged so (seeds/realtime-watching.md §5): filters that take long, changes that concern very many subscriptions,
tasks that run again.
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
"""For all pairs of one shape in one batch."""
LARGE_MATCH_COUNT = 1_000
"""Subscriptions that one change concerns."""


class SampledLog:
    """One per worker process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._last: dict[tuple[str, str], tuple[float, int]] = {}
        """When a subject was logged last, and how many were left out since."""

    def log(self, action: str, subject: str, text: str, **fields: Any) -> bool:
        """Log it unless the same was logged a moment ago; whether it was logged."""
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
    """Say it in the log of this process. (A function, since Spark carries what its tasks refer to.)"""
    return _worker.log(action, subject, text, **fields)
