"""Work: an element that consumers wait for, where it stands in line, and the delivery that holds it.

Theory of operation. An element matches some consume watches; it has a place in the pool of each. Handing it out makes
a delivery, and takes it out of line everywhere: a claim is global. A million elements may wait, nearly all of them in
one line and nothing else, so all that is kept of them is a `QueueEntry`. An element in any other state has a
`QueuedElement`. A delivery ends exactly once, and says how:

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

from vedette.watch.ordering import SortKey

if TYPE_CHECKING:
    from vedette.queue.match_queue import Consumer, MatchQueue

__all__ = [
    "TRANSITIONS",
    "Attempts",
    "Delivery",
    "DeliveryEvent",
    "DeliveryState",
    "LazyMatches",
    "QueueEntry",
    "QueuedElement",
    "QueuedMatch",
]


class DeliveryState(StrEnum):
    PENDING = "pending"
    ENLISTED = "enlisted"
    DONE = "done"
    REQUEUED = "returned"
    PARKED = "buried"


class DeliveryEvent(StrEnum):
    ENLIST = "enlist"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    REQUEUE = "return"
    """NACK, timeout or release: it may be handed out again."""
    PARK = "bury"


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


class QueuedMatch(NamedTuple):
    """One match of an element: what a consumer would be handed."""

    identity: Any
    row: Mapping[str, Any]
    rank: SortKey
    serialization_key: Hashable


class _Late:
    """Stands for a match that is looked at when it is asked for."""


_LAZY = _Late()


class LazyMatches(Protocol):
    """What an element's one match looks like, worked out when somebody asks: most of those who wait are not asked."""

    def rank(self, element: str) -> SortKey: ...

    def best_match(self, element: str) -> QueuedMatch: ...

    def rows(self, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        """Of many at once: what lies anywhere in a large memory is fetched together."""
        ...


class QueuedElement:
    """An element that is more than a place in one line: handed out, delayed, parked, or in several lines."""

    __slots__ = ("blocked_keys", "delayed_until", "delivery", "element", "entries", "parked")

    def __init__(self, place: QueueEntry) -> None:
        self.element = place.element
        self.entries: tuple[QueueEntry, ...] = (place,)
        """Where it stands, in the order in which it came there."""
        self.delivery: Delivery | None = None
        self.delayed_until: float | None = None
        """Not handed out before this moment of the clock."""
        self.parked = False
        self.blocked_keys: tuple[tuple[Any, Hashable], ...] = ()
        """Keys of serialize_by, with their groups, that wait for it to be done with."""

    @property
    def is_available(self) -> bool:
        return self.delivery is None and self.delayed_until is None and not self.parked

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left of what made it more than its place."""
        return len(self.entries) == 1 and self.is_available and not self.blocked_keys

    def add_entry(self, place: QueueEntry) -> None:
        self.entries = (*self.entries, place)
        place.queued_element = self

    def remove_entry(self, place: QueueEntry) -> None:
        self.entries = tuple([each for each in self.entries if each is not place])


@mypyc_attr(acyclic=True)  # with its pool it is a cycle, which `MatchQueue.clear` breaks
class QueueEntry:
    """An element in one pool: its matches there, and where it stands in line."""

    __slots__ = (
        "_wants",
        "arrival",
        "element",
        "is_in_line",
        "line_version",
        "pool",
        "queued_element",
        "sequence",
        "tick",
    )

    def __init__(self, element: str, pool: MatchQueue, arrival: int) -> None:
        self.element, self.pool, self.arrival = element, pool, arrival
        self.queued_element: QueuedElement | None = None
        """Of an element that is more than this place."""
        self._wants: QueuedMatch | dict[Any, QueuedMatch] | _Late | None = None
        """Its match; several by identity; or that there is one, to be looked at when it is asked for."""
        self.sequence = 0
        """The commit that it must not be handed out before."""
        self.tick = 0
        self.line_version = 0
        self.is_in_line = False

    def __lt__(self, other: QueueEntry) -> bool:
        """Whether it came first."""
        return self.arrival < other.arrival

    def __hash__(self) -> int:
        return self.arrival

    @property
    def is_available(self) -> bool:
        """Whether its element may be handed out."""
        return self.queued_element is None or self.queued_element.is_available

    @property
    def has_match(self) -> bool:
        """Whether the element matches."""
        return self._wants is not None

    @property
    def best_match(self) -> QueuedMatch | None:
        """The match to hand out: of several the one that ranks first."""
        wants = self._wants
        if wants is _LAZY:
            assert self.pool.lazy_matches is not None
            return self.pool.lazy_matches.best_match(self.element)
        if isinstance(wants, dict):
            return min(wants.values(), key=lambda want: want.rank)
        assert wants is None or isinstance(wants, QueuedMatch)
        return wants

    @property
    def row(self) -> Mapping[str, Any]:
        """What is handed out."""
        want = self.best_match
        assert want is not None
        return want.row

    @property
    def rank(self) -> SortKey:
        if self._wants is _LAZY:
            assert self.pool.lazy_matches is not None
            return self.pool.lazy_matches.rank(self.element)
        want = self.best_match
        return want.rank if want is not None else ()

    @property
    def serialization_key(self) -> Hashable:
        want = self.best_match if self.pool.is_serialized else None
        return want.serialization_key if want is not None else None

    def set_match(self, want: QueuedMatch | None) -> None:
        """Another match, or a match that looks different now; None: the element's only one, to be looked at late."""
        known = self._wants
        if want is None:
            self._wants = _LAZY
        elif isinstance(known, dict):
            known[want.identity] = want
        elif isinstance(known, QueuedMatch) and known.identity != want.identity:
            self._wants = {known.identity: known, want.identity: want}
        else:
            self._wants = want

    def remove_match(self, identity: Any) -> bool:
        """A match is gone; returns whether any is left."""
        known = self._wants
        if isinstance(known, dict):
            known.pop(identity, None)
            if len(known) == 1:
                (self._wants,) = known.values()
        elif known is _LAZY or (isinstance(known, QueuedMatch) and known.identity == identity):
            self._wants = None
        return self._wants is not None

    def clear(self) -> None:
        """It matches no more, and its pool may keep it for a while."""
        self._wants = self.queued_element = None

    def identities(self) -> list[Any]:
        if self._wants is _LAZY:
            return [(self.element,)]
        return [want.identity for want in self.wants()]

    def wants(self) -> list[QueuedMatch]:
        if isinstance(self._wants, dict):
            return list(self._wants.values())
        want = self.best_match
        return [want] if want is not None else []


class Delivery:
    """One element in the hands of one consumer."""

    __slots__ = (
        "attempt",
        "consumer",
        "deadline",
        "entry",
        "id",
        "is_withdrawn",
        "queued_element",
        "row",
        "state",
    )

    def __init__(
        self,
        id: str,
        item: QueuedElement,
        place: QueueEntry,
        match: Mapping[str, Any],
        member: Consumer,
        *,
        deadline: float,
        attempt: int,
    ) -> None:
        self.id, self.queued_element, self.entry, self.consumer = id, item, place, member
        self.row = match
        self.deadline = deadline
        self.attempt = attempt
        """1 for the first time it is handed out."""
        self.state = DeliveryState.PENDING
        self.is_withdrawn = False
        """Whether the element stopped matching since."""

    @property
    def is_open(self) -> bool:
        return self.state in (DeliveryState.PENDING, DeliveryState.ENLISTED)

    def apply(self, event: DeliveryEvent) -> bool:
        """Move on; False when the event has no place here (the caller says E8004)."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        return True
