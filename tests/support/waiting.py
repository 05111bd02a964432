"""Waiting for a condition with a time limit that also holds on a loaded machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["TIMEOUT_SECONDS", "wait_until"]

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0
"""Time limit for an expected event."""


def wait_until(
    condition: Callable[[], T], *, seconds: float = TIMEOUT_SECONDS, interval_seconds: float = 0.005
) -> T:
    """Call `condition` until it returns a true value, and return that value. Fail after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"the condition did not become true within {seconds:g} s"
        time.sleep(interval_seconds)
    return found
