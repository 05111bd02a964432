"""Records about deliveries that users see: dead letters and withdrawals. Not compiled, because clients import them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["REASON_MAX_REDELIVERIES", "REASON_NO_RETRY", "DeadLetter", "Withdrawal"]

REASON_NO_RETRY = "no_retry"
REASON_MAX_REDELIVERIES = "max_redeliveries_exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter. `elements` are the images of all elements deleted with it, in deletion order."""

    id: str
    watch: str
    pattern: str
    """The statement of the watch. The watch itself may no longer exist."""
    group: str | None
    actor: str | None
    destination: str | None
    reason: str
    cause: str | None
    """The reason that the consumer gave."""
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


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A pending delivery whose element no longer matches or was deleted. The consumer can stop working on it."""

    delivery_id: str
    element: str

    code = "WITHDRAWN"
    name = "WITHDRAWN"
    retryable = False

    @property
    def fields(self) -> dict[str, Any]:
        return {"delivery_id": self.delivery_id, "element": self.element}

    def __str__(self) -> str:
        return f"Withdrawn: delivery '{self.delivery_id}' does not match any more; ACK still deletes it, NACK drops it"
