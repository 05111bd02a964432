"""What the jobs of both clients have in common: a delivery, and what becomes of a block that failed or was too slow."""

from __future__ import annotations

import logging
from typing import Any

from vedette.change import Event
from vedette.errors import VedetteError

__all__ = ["DeliveredJob"]

log = logging.getLogger(__name__)
_LONGEST_CAUSE = 500


class DeliveredJob:
    """One delivery in hand.

    An Exception in its block is logged, noted as the cause, and goes no further: the job is tried again, or ends as a
    dead letter. What is no Exception (a Ctrl-C, a cancelled task) is raised, and counts no attempt.
    """

    def __init__(self, event: Event) -> None:
        self.event = event
        self.ended = False
        """Whether it was acknowledged, given back or rejected."""

    @property
    def match(self) -> Any:
        return self.event.match

    @property
    def delivery_id(self) -> str | None:
        return self.event.delivery_id

    @property
    def attempt(self) -> int:
        """1 for the first time that it is handed out."""
        return int(self.event.attributes.get("attempt", 1))

    def log_failure(self, error: BaseException) -> str:
        """Log what went wrong in its block; returns it as the cause."""
        cause = f"{type(error).__name__}: {error}"[:_LONGEST_CAUSE]
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
        """Its lease is over (E8004): the job is somebody else's by now, and the loop goes on. Raises all else."""
        if problem.code != "E8004":
            raise problem
        log.warning(
            "Job %s finished after its lease; it is delivered again. Extend the lease or raise ack_timeout",
            self.delivery_id,
            extra={"action": "job.late", "delivery": self.delivery_id},
        )
