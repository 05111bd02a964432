"""What the jobs of both clients have in common: the delivery, and the handling of failed or late blocks."""

from __future__ import annotations

import logging
from typing import Any

from vedette.change import Event
from vedette.errors import VedetteError

__all__ = ["DeliveredJob"]

log = logging.getLogger(__name__)
_MAX_CAUSE_CHARS = 500


class DeliveredJob:
    """One delivery.

    An Exception in its block is logged, stored as the cause and suppressed: the job is retried or becomes a dead
    letter. Other exceptions (Ctrl-C, a cancelled task) are raised and count no attempt.
    """

    def __init__(self, event: Event) -> None:
        self.event = event
        self.ended = False
        """True once the job was acknowledged, requeued or rejected."""

    @property
    def match(self) -> Any:
        return self.event.match

    @property
    def delivery_id(self) -> str | None:
        return self.event.delivery_id

    @property
    def attempt(self) -> int:
        """Number of this attempt, starting at 1."""
        return int(self.event.attributes.get("attempt", 1))

    def log_failure(self, error: BaseException) -> str:
        """Log the error of a failed block and return it as the cause."""
        cause = f"{type(error).__name__}: {error}"[:_MAX_CAUSE_CHARS]
        log.warning(
            "Job %s failed at attempt %d: %s",
            self.delivery_id,
            self.attempt,
            cause,
            exc_info=error,
            extra={"action": "job.failed", "delivery": self.delivery_id},
        )
        return cause

    def log_lease_expired(self, problem: VedetteError) -> None:
        """Log that the lease expired (E8004), so that the loop continues: the job may be delivered elsewhere. Raise
        other errors.
        """
        if problem.code != "E8004":
            raise problem
        log.warning(
            "Job %s finished after its lease; it is delivered again. Extend the lease or raise ack_timeout",
            self.delivery_id,
            extra={"action": "job.late", "delivery": self.delivery_id},
        )
