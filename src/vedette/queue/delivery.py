"""The states of a delivery, and the failed attempts that are stored.

A delivery ends exactly once:

  pending ── enlist ─────▶ enlisted      ACK: the transaction that deletes the element decides
     │          enlisted ── commit ──▶ done, ── rollback ──▶ pending
     ├─────── requeue ───▶ requeued      NACK, timeout, release (also from enlisted: the COMMIT then fails)
     └─────── park ──────▶ parked        it could not be dead-lettered
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

__all__ = ["TRANSITIONS", "Attempts", "DeliveryEvent", "DeliveryState"]


class DeliveryState(StrEnum):
    PENDING = "pending"
    ENLISTED = "enlisted"
    DONE = "done"
    REQUEUED = "requeued"
    PARKED = "parked"


class DeliveryEvent(StrEnum):
    ENLIST = "enlist"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    REQUEUE = "requeue"
    """NACK, timeout or release: the element may be delivered again."""
    PARK = "park"


_S, _E = DeliveryState, DeliveryEvent

TRANSITIONS: Mapping[tuple[DeliveryState, DeliveryEvent], DeliveryState] = {
    (_S.PENDING, _E.ENLIST): _S.ENLISTED,
    (_S.ENLISTED, _E.COMMIT): _S.DONE,
    (_S.ENLISTED, _E.ROLLBACK): _S.PENDING,
    (_S.PENDING, _E.REQUEUE): _S.REQUEUED,
    (_S.ENLISTED, _E.REQUEUE): _S.REQUEUED,
    (_S.PENDING, _E.PARK): _S.PARKED,
    (_S.ENLISTED, _E.PARK): _S.PARKED,
}


class Attempts(NamedTuple):
    """How often deliveries of an element failed in one consumer group.

    Stored; deleted when the element stops matching.
    """

    failures: int = 0
    timeouts: int = 0
    until_ms: int = 0
    """Not delivered again before this time (milliseconds since 1970)."""
    parked: bool = False
    """The element could not be moved to its dead-letter destination and is not delivered."""

    @property
    def total(self) -> int:
        return self.failures + self.timeouts
