"""Queued elements, their entries and deliveries.

An element has one entry in each queue it matches. Delivering it creates a `Delivery` and removes it from the lines of
all queues: a claim is global. Millions of elements may wait, nearly all of them in one line only, so a waiting element
is just a `QueueEntry`. An element in any other state has a `QueuedElement`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from vedette.queue.delivery import TRANSITIONS, DeliveryEvent, DeliveryState
from vedette.watch.ordering import SortKey

if TYPE_CHECKING:
    from vedette.queue.group import Consumer
    from vedette.queue.match_queue import MatchQueue

__all__ = [
    "Delivery",
    "LazyMatches",
    "QueueEntry",
    "QueuedElement",
    "QueuedMatch",
]


class QueuedMatch(NamedTuple):
    """One match of an element, as it would be delivered."""

    identity: Any
    row: Mapping[str, Any]
    rank: SortKey
    serialization_key: Hashable


class _LazyMatch:
    """Marks an entry whose match is computed when it is needed."""


_LAZY = _LazyMatch()


class LazyMatches(Protocol):
    """Computes the only match of an element on demand."""

    def rank(self, element: str) -> SortKey: ...

    def best_match(self, element: str) -> QueuedMatch: ...

    def rows(self, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        """Rows of many elements at once, so that memory accesses overlap."""
        ...


class QueuedElement:
    """State of an element that is delivered, delayed, parked, or in several queues."""

    __slots__ = ("blocked_keys", "delayed_until", "delivery", "element", "entries", "parked")

    def __init__(self, entry: QueueEntry) -> None:
        self.element = entry.element
        self.entries: tuple[QueueEntry, ...] = (entry,)
        """Its entries in the order of arrival."""
        self.delivery: Delivery | None = None
        self.delayed_until: float | None = None
        """Not delivered before this time of the monotonic clock."""
        self.parked = False
        self.blocked_keys: tuple[tuple[Any, Hashable], ...] = ()
        """Serialization keys, with their groups, that this element blocks."""

    @property
    def is_available(self) -> bool:
        return self.delivery is None and self.delayed_until is None and not self.parked

    @property
    def is_idle(self) -> bool:
        """True if the element only waits in one queue, so that this object is no longer needed."""
        return len(self.entries) == 1 and self.is_available and not self.blocked_keys

    def add_entry(self, entry: QueueEntry) -> None:
        self.entries = (*self.entries, entry)
        entry.queued_element = self

    def remove_entry(self, entry: QueueEntry) -> None:
        self.entries = tuple([each for each in self.entries if each is not entry])


@mypyc_attr(acyclic=True)  # entry and queue reference each other; `MatchQueue.clear` breaks the cycle
class QueueEntry:
    """An element in one queue: its matches and its state in the line."""

    __slots__ = (
        "_matches",
        "arrival",
        "element",
        "is_in_line",
        "line_version",
        "queue",
        "queued_element",
        "sequence",
        "tick",
    )

    def __init__(self, element: str, queue: MatchQueue, arrival: int) -> None:
        self.element, self.queue, self.arrival = element, queue, arrival
        self.queued_element: QueuedElement | None = None
        """Set if the element is delivered, delayed, parked, or in several queues."""
        self._matches: QueuedMatch | dict[Any, QueuedMatch] | _LazyMatch | None = None
        """One match; several by identity; or the marker for a lazy match."""
        self.sequence = 0
        """The commit that must be durable before the entry is delivered."""
        self.tick = 0
        self.line_version = 0
        self.is_in_line = False

    def __lt__(self, other: QueueEntry) -> bool:
        """True if this entry arrived first."""
        return self.arrival < other.arrival

    def __hash__(self) -> int:
        return self.arrival

    @property
    def is_available(self) -> bool:
        """True if the element may be delivered."""
        return self.queued_element is None or self.queued_element.is_available

    @property
    def has_match(self) -> bool:
        """True if the element matches."""
        return self._matches is not None

    @property
    def best_match(self) -> QueuedMatch | None:
        """The match to deliver: the best-ranked of several."""
        matches = self._matches
        if matches is _LAZY:
            assert self.queue.lazy_matches is not None
            return self.queue.lazy_matches.best_match(self.element)
        if isinstance(matches, dict):
            return min(matches.values(), key=lambda match: match.rank)
        assert matches is None or isinstance(matches, QueuedMatch)
        return matches

    @property
    def row(self) -> Mapping[str, Any]:
        """The row to deliver."""
        match = self.best_match
        assert match is not None
        return match.row

    @property
    def rank(self) -> SortKey:
        if self._matches is _LAZY:
            assert self.queue.lazy_matches is not None
            return self.queue.lazy_matches.rank(self.element)
        match = self.best_match
        return match.rank if match is not None else ()

    @property
    def serialization_key(self) -> Hashable:
        match = self.best_match if self.queue.is_serialized else None
        return match.serialization_key if match is not None else None

    def set_match(self, match: QueuedMatch | None) -> None:
        """Add or replace a match. None marks the only match as lazy."""
        known = self._matches
        if match is None:
            self._matches = _LAZY
        elif isinstance(known, dict):
            known[match.identity] = match
        elif isinstance(known, QueuedMatch) and known.identity != match.identity:
            self._matches = {known.identity: known, match.identity: match}
        else:
            self._matches = match

    def remove_match(self, identity: Any) -> bool:
        """Remove a match. Return True if any match is left."""
        known = self._matches
        if isinstance(known, dict):
            known.pop(identity, None)
            if len(known) == 1:
                (self._matches,) = known.values()
        elif known is _LAZY or (isinstance(known, QueuedMatch) and known.identity == identity):
            self._matches = None
        return self._matches is not None

    def clear(self) -> None:
        """Drop all matches. The queue may keep the cleared entry for a while."""
        self._matches = self.queued_element = None

    def identities(self) -> list[Any]:
        if self._matches is _LAZY:
            return [(self.element,)]
        return [match.identity for match in self.matches()]

    def matches(self) -> list[QueuedMatch]:
        if isinstance(self._matches, dict):
            return list(self._matches.values())
        match = self.best_match
        return [match] if match is not None else []


class Delivery:
    """One element held by one consumer."""

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
        entry: QueueEntry,
        match: Mapping[str, Any],
        consumer: Consumer,
        *,
        deadline: float,
        attempt: int,
    ) -> None:
        self.id, self.queued_element, self.entry, self.consumer = id, item, entry, consumer
        self.row = match
        self.deadline = deadline
        self.attempt = attempt
        """1 for the first delivery."""
        self.state = DeliveryState.PENDING
        self.is_withdrawn = False
        """True if the element has stopped matching since."""

    @property
    def is_open(self) -> bool:
        return self.state in (DeliveryState.PENDING, DeliveryState.ENLISTED)

    def apply(self, event: DeliveryEvent) -> bool:
        """Apply the event. Return False if it is not allowed in this state (the caller raises E8004)."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        return True
