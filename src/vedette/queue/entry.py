"""Work: an element that consumers wait for, where it stands in line, and the delivery that holds it.

Theory of operation. An element matches some consume watches; it has a place in the pool of each. Handing it out makes
a delivery, and takes it out of line everywhere: a claim is global. A million elements may wait, nearly all of them in
one line and nothing else, so that is all that is kept of them: a `Place`. What is more than that is a `WorkItem` for as
long as it is. A delivery ends exactly once, and says how:

    pending ── enlist ─────▶ enlisted      ACK: the transaction that deletes the element decides
       │          enlisted ── commit ──▶ done, ── rollback ──▶ pending
       ├─────── return ────▶ returned      NACK, timeout, release (from enlisted too: the COMMIT is refused then)
       └─────── bury ──────▶ buried        its attempts are used up, or nobody wants it tried again
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from vedette.watch.ordering import Rank

if TYPE_CHECKING:
    from vedette.queue.match_queue import Member, Pool

__all__ = [
    "TRANSITIONS",
    "Attempts",
    "Delivery",
    "DeliveryEvent",
    "DeliveryState",
    "LateWants",
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


class _Late:
    """Stands for a match that is looked at when it is asked for."""


_LATE = _Late()


class LateWants(Protocol):
    """What an element's one match looks like, worked out when somebody asks: most of those who wait are not asked."""

    def rank(self, element: str) -> Rank: ...

    def want(self, element: str) -> Want: ...

    def matches(self, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        """Of many at once: what lies anywhere in a large memory is fetched together."""
        ...


class WorkItem:
    """An element that is more than a place in one line: handed out, delayed, parked, or in several lines."""

    __slots__ = ("delivery", "element", "held_keys", "parked", "places", "until")

    def __init__(self, place: Place) -> None:
        self.element = place.element
        self.places: tuple[Place, ...] = (place,)
        """Where it stands, in the order in which it came there."""
        self.delivery: Delivery | None = None
        self.until: float | None = None
        """Not handed out before this moment of the clock."""
        self.parked = False
        self.held_keys: tuple[tuple[Any, Hashable], ...] = ()
        """Keys of serialize_by, with their groups, that wait for it to be done with."""

    @property
    def available(self) -> bool:
        return self.delivery is None and self.until is None and not self.parked

    @property
    def ordinary(self) -> bool:
        """Whether nothing is left of what made it more than its place."""
        return len(self.places) == 1 and self.available and not self.held_keys

    def enter(self, place: Place) -> None:
        self.places = (*self.places, place)
        place.item = self

    def leave(self, place: Place) -> None:
        self.places = tuple([each for each in self.places if each is not place])


@mypyc_attr(acyclic=True)  # with its pool it is a cycle, which `Pool.clear` breaks
class Place:
    """An element in one pool: its matches there, and where it stands in line."""

    __slots__ = ("_wants", "arrival", "element", "item", "pool", "sequence", "tick", "ticket", "waiting")

    def __init__(self, element: str, pool: Pool, arrival: int) -> None:
        self.element, self.pool, self.arrival = element, pool, arrival
        self.item: WorkItem | None = None
        """Of an element that is more than this place."""
        self._wants: Want | dict[Any, Want] | _Late | None = None
        """Its match; several by identity; or that there is one, to be looked at when it is asked for."""
        self.sequence = 0
        """The commit that it must not be handed out before."""
        self.tick = 0
        self.ticket = 0
        self.waiting = False

    def __lt__(self, other: Place) -> bool:
        """Whether it came first."""
        return self.arrival < other.arrival

    def __hash__(self) -> int:
        return self.arrival

    @property
    def available(self) -> bool:
        """Whether its element may be handed out."""
        return self.item is None or self.item.available

    @property
    def wanted(self) -> bool:
        """Whether the element matches."""
        return self._wants is not None

    @property
    def want(self) -> Want | None:
        """The match to hand out: of several the one that ranks first."""
        wants = self._wants
        if wants is _LATE:
            assert self.pool.late is not None
            return self.pool.late.want(self.element)
        if isinstance(wants, dict):
            return min(wants.values(), key=lambda want: want.rank)
        assert wants is None or isinstance(wants, Want)
        return wants

    @property
    def match(self) -> Mapping[str, Any]:
        """What is handed out."""
        want = self.want
        assert want is not None
        return want.match

    @property
    def rank(self) -> Rank:
        if self._wants is _LATE:
            assert self.pool.late is not None
            return self.pool.late.rank(self.element)
        want = self.want
        return want.rank if want is not None else ()

    @property
    def serial(self) -> Hashable:
        want = self.want if self.pool.serialized else None
        return want.serial if want is not None else None

    def put(self, want: Want | None) -> None:
        """Another match, or a match that looks different now; None: the element's only one, to be looked at late."""
        known = self._wants
        if want is None:
            self._wants = _LATE
        elif isinstance(known, dict):
            known[want.identity] = want
        elif isinstance(known, Want) and known.identity != want.identity:
            self._wants = {known.identity: known, want.identity: want}
        else:
            self._wants = want

    def drop(self, identity: Any) -> bool:
        """A match is gone; returns whether any is left."""
        known = self._wants
        if isinstance(known, dict):
            known.pop(identity, None)
            if len(known) == 1:
                (self._wants,) = known.values()
        elif known is _LATE or (isinstance(known, Want) and known.identity == identity):
            self._wants = None
        return self._wants is not None

    def clear(self) -> None:
        """It matches no more, and its pool may keep it for a while."""
        self._wants = self.item = None

    def identities(self) -> list[Any]:
        if self._wants is _LATE:
            return [(self.element,)]
        return [want.identity for want in self.wants()]

    def wants(self) -> list[Want]:
        if isinstance(self._wants, dict):
            return list(self._wants.values())
        want = self.want
        return [want] if want is not None else []


class Delivery:
    """One element in the hands of one consumer."""

    __slots__ = ("attempt", "deadline", "id", "item", "match", "member", "place", "state", "withdrawn")

    def __init__(
        self,
        id: str,
        item: WorkItem,
        place: Place,
        match: Mapping[str, Any],
        member: Member,
        *,
        deadline: float,
        attempt: int,
    ) -> None:
        self.id, self.item, self.place, self.member = id, item, place, member
        self.match = match
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
