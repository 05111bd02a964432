"""Dead letters: what could not be consumed, with all that is needed to understand it and to send it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["REASON_MAX_REDELIVERIES", "REASON_NO_RETRY", "DeadLetter"]

REASON_NO_RETRY = "no_retry"
REASON_MAX_REDELIVERIES = "max_redeliveries_exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One letter. `elements` are the images of everything that was deleted with it, in the order of their deletion."""

    id: str
    watch: str
    pattern: str
    """The statement of the watch: the watch itself may be gone by now."""
    group: str | None
    actor: str | None
    destination: str | None
    reason: str
    cause: str | None
    """What the consumer said went wrong."""
    failures: int
    timeouts: int
    element: str
    match: str
    """The match as JSON."""
    created_ms: int
    elements: tuple[Mapping[str, Any], ...]

    @property
    def attempts(self) -> int:
        return self.failures + self.timeouts
