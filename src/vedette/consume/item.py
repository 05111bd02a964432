"""Work: an element that consumers wait for, where it stands in line, and the delivery that holds it.

Theory of operation. An element matches some consume watches; it has a place in the pool of each. Handing it out makes
a delivery, and takes it out of line everywhere: a claim is global. A delivery ends exactly once, and says how:

    pending ── enlist ─────▶ enlisted      ACK: the transaction that deletes the element decides
       │          enlisted ── commit ──▶ done, ── rollback ──▶ pending
       ├─────── return ────▶ returned      NACK, timeout, release (from enlisted too: the COMMIT is refused then)
       └─────── bury ──────▶ buried        its attempts are used up, or nobody wants it tried again
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.consume.rank import Rank

if TYPE_CHECKING:
    from vedette.consume.pool import Member, Pool

__all__ = [
    "TRANSITIONS",
    "Attempts",
    "Delivery",
    "DeliveryEvent",
    "DeliveryState",
    "Place",
    "Want",
    "WorkItem",
]


class DeliveryState(StrEnum):
    PENDING = "pending"
    ENLISTED = "enlisted"
    DONE = "done"
    RETURNED = "returned"
    BURIED = "buried"


class DeliveryEvent(StrEnum):
    ENLIST = "enlist"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    RETURN = "return"
    """NACK, timeout or release: it may be handed out again."""
    BURY = "bury"


_S, _E = DeliveryState, DeliveryEvent

TRANSITIONS: Mapping[tuple[DeliveryState, DeliveryEvent], DeliveryState] = {
    (_S.PENDING, _E.ENLIST): _S.ENLISTED,
    (_S.ENLISTED, _E.COMMIT): _S.DONE,
    (_S.ENLISTED, _E.ROLLBACK): _S.PENDING,
    (_S.PENDING, _E.RETURN): _S.RETURNED,
    (_S.ENLISTED, _E.RETURN): _S.RETURNED,
    (_S.PENDING, _E.BURY): _S.BURIED,
    (_S.ENLISTED, _E.BURY): _S.BURIED,
}


class Attempts(NamedTuple):
    """What went wrong with an element in one group so far. Kept over restarts, forgotten when it stops matching."""

    failures: int = 0
    timeouts: int = 0
    until_ms: int = 0
    """Not handed out again before this moment (milliseconds since 1970)."""
    parked: bool = False
    """It could not be moved to its dead letter destination: kept, and not handed out."""

    @property
    def total(self) -> int:
        return self.failures + self.timeouts


class Want(NamedTuple):
    """One match of an element: what a consumer would be handed."""

    identity: Any
    match: Mapping[str, Any]
    rank: Rank
    serial: Hashable


class WorkItem:
    """One element, for all consumers together."""

    __slots__ = ("delivery", "element", "held_keys", "parked", "places", "until")

    def __init__(self, element: str) -> None:
        self.element = element
        self.places: list[Place] = []
        self.delivery: Delivery | None = None
        self.until: float | None = None
        """Not handed out before this moment of the clock."""
        self.parked = False
        self.held_keys: tuple[tuple[Any, Hashable], ...] = ()
        """Keys of serialize_by, with their groups, that wait for it to be done with."""

    @property
    def available(self) -> bool:
        return self.delivery is None and self.until is None and not self.parked


class Place:
    """An element in one pool: its matches there, and where it stands in line."""

    __slots__ = ("_wants", "arrival", "item", "pool", "sequence", "tick", "ticket", "waiting", "want")

    def __init__(self, item: WorkItem, pool: Pool, arrival: int) -> None:
        self.item, self.pool, self.arrival = item, pool, arrival
        self.want: Want | None = None
        """The match to hand out: of several the one that ranks first."""
        self._wants: dict[Any, Want] | None = None
        """All of them, when there are several."""
        self.sequence = 0
        """The commit that it must not be handed out before."""
        self.tick = 0
        self.ticket = 0
        self.waiting = False

    @property
    def rank(self) -> Rank:
        return self.want.rank if self.want is not None else ()

    @property
    def serial(self) -> Hashable:
        return self.want.serial if self.want is not None else None

    def put(self, want: Want) -> None:
        """Another match, or a match that looks different now."""
        if self.want is None or (self._wants is None and self.want.identity == want.identity):
            self.want = want
            return
        if self._wants is None:
            self._wants = {self.want.identity: self.want}
        self._wants[want.identity] = want
        self._choose()

    def drop(self, identity: Any) -> bool:
        """A match is gone; returns whether any is left."""
        if self._wants is None:
            if self.want is not None and self.want.identity == identity:
                self.want = None
            return self.want is not None
        self._wants.pop(identity, None)
        self._choose()
        return True

    def _choose(self) -> None:
        assert self._wants is not None
        self.want = min(self._wants.values(), key=lambda want: want.rank)
        if len(self._wants) == 1:
            self._wants = None

    def identities(self) -> list[Any]:
        if self._wants is not None:
            return list(self._wants)
        return [self.want.identity] if self.want is not None else []

    def wants(self) -> list[Want]:
        if self._wants is not None:
            return list(self._wants.values())
        return [self.want] if self.want is not None else []


class Delivery:
    """One element in the hands of one consumer."""

    __slots__ = ("attempt", "deadline", "id", "item", "member", "place", "state", "want", "withdrawn")

    def __init__(self, id: str, place: Place, member: Member, *, deadline: float, attempt: int) -> None:
        self.id, self.item, self.place, self.member = id, place.item, place, member
        assert place.want is not None
        self.want = place.want
        self.deadline = deadline
        self.attempt = attempt
        """1 for the first time it is handed out."""
        self.state = DeliveryState.PENDING
        self.withdrawn = False
        """Whether the element stopped matching since."""

    @property
    def open(self) -> bool:
        return self.state in (DeliveryState.PENDING, DeliveryState.ENLISTED)

    def happen(self, event: DeliveryEvent) -> bool:
        """Move on; False when the event has no place here (the caller says E8004)."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        return True
