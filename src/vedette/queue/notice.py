"""The notice a consumer receives besides its deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Withdrawal"]


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
