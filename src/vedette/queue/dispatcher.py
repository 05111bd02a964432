"""The desk where work is handed out and taken back: claims, leases, attempts. It decides; the engine carries out.

Every element is known once, whoever waits for it. Time is a number that the caller brings; what must be durable before
an item is handed out again is a number as well, the sequence of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from vedette.queue.entry import Attempts, Delivery, DeliveryEvent, QueuedElement, QueuedMatch, QueueEntry
from vedette.queue.match_queue import Consumer, ConsumerGroup, MatchQueue

__all__ = ["Dispatcher"]

_SPARE = 1024
"""So many appointments are no reason to look which of them came to nothing."""


class Dispatcher:
    """All consume watches of one database."""

    def __init__(self, new_id: Callable[[], str], seconds_until: Callable[[int], float]) -> None:
        """`seconds_until`: how long until a moment of the day, given in milliseconds since 1970."""
        self._new_id, self._seconds_until = new_id, seconds_until
        self._entries: dict[str, QueueEntry] = {}
        """Element ▸ the first of its places; its item, where it has one, knows the others."""
        self._unmatched: dict[str, QueuedElement] = {}
        """Element ▸ its item, while somebody holds what matches nowhere any more."""
        self.deliveries: dict[str, Delivery] = {}
        """Those that have not ended, by id."""
        self.groups: dict[Hashable, ConsumerGroup] = {}
        self.attempts: dict[str, dict[str | None, Attempts]] = {}
        """Element ▸ group ▸ what went wrong so far."""
        self._arrivals = 0
        self._deadlines: list[tuple[float, int, Delivery | QueuedElement]] = []
        """Leases and delays by the moment they end; those that ended otherwise are void."""
        self._agenda_bound = _SPARE
        """So long it may become before the void ones are taken out."""
        self._deadline_count = 0
        self.key_freed: Callable[[ConsumerGroup], None] = lambda _: None
        """Called when a group has let go of a key (serialize_by): who waits for it may have a turn."""

    # --- consumers --------------------------------------------------------------------------------------------

    def group(self, key: Hashable, name: str | None) -> ConsumerGroup:
        if key not in self.groups:
            self.groups[key] = ConsumerGroup(key, name)
        return self.groups[key]

    def add_consumer(self, member: Consumer, pool: MatchQueue) -> None:
        if member not in member.group.members:
            member.group.members.append(member)
        pool.members.append(member)
        member.pool = pool

    def detach_consumer(self, member: Consumer) -> MatchQueue | None:
        """Stop handing out to it; returns its pool when nobody else draws from it. What it holds is for the caller."""
        pool, group = member.pool, member.group
        member.pool = None
        if pool is None:
            return None
        pool.members.remove(member)
        if pool.members:
            return None
        group.pools.remove(pool)
        for place in list(pool.places):
            self._remove_place(place)
        pool.clear()
        return pool

    def remove_consumer(self, member: Consumer) -> None:
        """The member is gone for good."""
        member.group.members.remove(member)
        self.remove_empty_group(member.group)

    def remove_empty_group(self, group: ConsumerGroup) -> None:
        if not group.members:
            del self.groups[group.key]

    # --- matches come and go ----------------------------------------------------------------------------------

    def unblock_key(
        self,
        pool: MatchQueue,
        element: str,
        want: QueuedMatch | None,
        *,
        sequence: int,
        tick: int,
        now: float,
    ) -> None:
        """The element matches, or matches otherwise than before. Without a want the pool looks at it late."""
        place = self.entry_in(pool, element)
        if place is None:
            self._arrivals += 1
            place = pool.add_place(element, self._arrivals)
            self._enter(place, now)
        pool.put(place, want)
        place.sequence, place.tick = sequence, tick
        pool.add(place)
        if pool.is_serialized:
            self._block_key(place)
        held = place.queued_element.delivery if place.queued_element is not None else None
        if held is not None and held.is_withdrawn and held.entry.pool is pool:
            held.entry, held.is_withdrawn = place, False  # it matches again

    def reorder(self, place: QueueEntry, sequence: int) -> None:
        """It may stand elsewhere in line from that commit on. It matched before, and waits for no other tick."""
        place.pool.remove(place)
        place.sequence = sequence
        place.pool.enqueue(place)

    def _enter(self, place: QueueEntry, now: float) -> None:
        element = place.element
        first = self._entries.get(element)
        if first is not None:
            self._queued_element(first).add_entry(place)
            return
        self._entries[element] = place
        item = self._unmatched.pop(element, None)
        if item is not None:
            item.add_entry(place)
        elif self.attempts:
            self._restore_attempts(place, now)

    def _restore_attempts(self, place: QueueEntry, now: float) -> None:
        """What an earlier process, or an earlier consumer, left: delays and parked items."""
        for attempts in self.attempts.get(place.element, {}).values():
            left = self._seconds_until(attempts.until_ms) if attempts.until_ms else 0.0
            if attempts.parked:
                self._queued_element(place).parked = True
            if left > 0:
                self._set_delay(self._queued_element(place), now + left)

    def entries_of(self, element: str) -> Sequence[QueueEntry]:
        """Where an element stands."""
        first = self._entries.get(element)
        if first is None:
            return ()
        return first.queued_element.entries if first.queued_element is not None else (first,)

    def warm(self, elements: Sequence[str]) -> None:
        """Look up those who will leave, one right after the other (see `Graph.fetch`)."""
        places = self._entries
        _ = [element in places for element in elements]

    def entry_in(self, pool: MatchQueue, element: str) -> QueueEntry | None:
        for place in self.entries_of(element):
            if place.pool is pool:
                return place
        return None

    def _queued_element(self, place: QueueEntry) -> QueuedElement:
        """Its element is more than a place from now on."""
        item = place.queued_element
        if item is None:
            item = place.queued_element = QueuedElement(place)
        return item

    def _discard_if_idle(self, item: QueuedElement) -> None:
        """What makes it more than its place is over, perhaps."""
        if item.is_idle:
            (place,) = item.entries
            place.queued_element = None

    def remove_match(self, pool: MatchQueue, element: str, identity: Any) -> Delivery | None:
        """A match is gone. Returns the delivery whose holder should be told that there is nothing to do any more."""
        place = self.entry_in(pool, element)
        if place is None:
            return None
        stood = place.is_in_line
        pool.remove(place)
        if not place.remove_match(identity):
            return self._remove_place(place)
        if stood:
            pool.enqueue(place)
        if pool.is_serialized:
            self._block_key(place)
        return None

    def _block_key(self, place: QueueEntry) -> None:
        """While it cannot be handed out, those behind it under its key wait with it."""
        item = place.queued_element
        if item is not None and not item.is_available and not item.parked:
            self._hold_key(item, place.pool.group, place.serialization_key)

    def _remove_place(self, place: QueueEntry) -> Delivery | None:
        item, pool = place.queued_element, place.pool
        pool.remove(place)
        pool.drop_entry(place)
        if item is None:
            del self._entries[place.element]
            return None
        item.remove_entry(place)
        if item.entries:
            self._entries[place.element] = item.entries[0]
        else:
            del self._entries[place.element]
        delivery = item.delivery
        told = None
        if delivery is not None and delivery.entry is place and not delivery.is_withdrawn:
            delivery.is_withdrawn = True
            told = delivery
        if item.entries:
            self._discard_if_idle(item)
        elif delivery is not None:
            self._unmatched[item.element] = item
        else:
            self._forget_element(item)
        return told

    def _forget_element(self, item: QueuedElement) -> None:
        self._free_keys(item)
        item.delayed_until = None
        self._unmatched.pop(item.element, None)

    # --- handing out ------------------------------------------------------------------------------------------

    def deliver(
        self, member: Consumer, limit: int | None, *, durable: int, now: float, lease: float
    ) -> list[Delivery]:
        """Claims for one poll, in order."""
        pool = member.pool
        if pool is None:
            return []
        pool.admit_durable(durable)
        handed: list[Delivery] = []
        share = member.fair_share(limit)
        while places := pool.pop(share - len(handed)):
            matches = pool.matches(places)
            for place, match in zip(places, matches, strict=True):
                handed.append(self._claim(place, match, member, now + lease))
        return handed

    def _claim(
        self, place: QueueEntry, match: Mapping[str, Any], member: Consumer, deadline: float
    ) -> Delivery:
        item = self._queued_element(place)
        attempt = 1 + self.attempts_of(item.element, member.group.name).total
        delivery = Delivery(self._new_id(), item, place, match, member, deadline=deadline, attempt=attempt)
        item.delivery = delivery
        for other in item.entries:
            other.pool.remove(other)
            if other.pool.is_serialized:
                self._hold_key(item, other.pool.group, other.serialization_key)
        self.deliveries[delivery.id] = member.deliveries[delivery.id] = delivery
        member.group.in_flight += 1
        self._push_deadline(deadline, delivery)
        return delivery

    def _hold_key(self, item: QueuedElement, group: ConsumerGroup, key: Hashable) -> None:
        if (group, key) not in item.blocked_keys:
            item.blocked_keys = (*item.blocked_keys, (group, key))
            group.block_key(key)

    def _free_keys(self, item: QueuedElement) -> None:
        held, item.blocked_keys = item.blocked_keys, ()
        for group, key in held:
            group.unblock_key(key)
            self.key_freed(group)

    # --- taking back ------------------------------------------------------------------------------------------

    def finish(self, delivery: Delivery, event: DeliveryEvent) -> bool:
        """The delivery ends; its element is gone, or going. False when it had ended already."""
        if not delivery.apply(event):
            return False
        self._close_delivery(delivery)
        if delivery.queued_element.entries:
            self._discard_if_idle(delivery.queued_element)
        else:
            self._forget_element(delivery.queued_element)
        return True

    def requeue(self, delivery: Delivery, *, sequence: int, until: float | None = None) -> bool:
        """The delivery ends and its element may be handed out again, when `sequence` is durable and it is time."""
        if not delivery.apply(DeliveryEvent.REQUEUE):
            return False
        self._close_delivery(delivery)
        item = delivery.queued_element
        if not item.entries:
            self._forget_element(item)
            return True
        for place in item.entries:
            place.sequence = max(place.sequence, sequence)
        if until is not None:
            self.delay(item, until)
        else:
            self._enqueue(item)
        return True

    def park(self, delivery: Delivery) -> bool:
        """It can neither be handed out nor buried: kept as it is."""
        if not delivery.apply(DeliveryEvent.PARK):
            return False
        self._close_delivery(delivery)
        delivery.queued_element.parked = True
        self._free_keys(delivery.queued_element)
        return True

    def unpark(self, element: str, sequence: int) -> None:
        first = self._entries.get(element)
        item = first.queued_element if first is not None else None
        if item is not None:
            item.parked = False
            for place in item.entries:
                place.sequence = max(place.sequence, sequence)
            if item.is_available:
                self._enqueue(item)

    def _close_delivery(self, delivery: Delivery) -> None:
        delivery.queued_element.delivery = None
        del self.deliveries[delivery.id]
        del delivery.consumer.deliveries[delivery.id]
        delivery.consumer.group.in_flight -= 1

    def _enqueue(self, item: QueuedElement) -> None:
        self._free_keys(item)
        for place in item.entries:
            place.pool.enqueue(place)
        self._discard_if_idle(item)

    def delay(self, item: QueuedElement, until: float) -> None:
        """Hand it out later; what stands behind it under the same key waits as well."""
        self._set_delay(item, until)
        for place in item.entries:
            place.pool.remove(place)
            if place.pool.is_serialized:
                self._hold_key(item, place.pool.group, place.serialization_key)

    def _set_delay(self, item: QueuedElement, until: float) -> None:
        item.delayed_until = until if item.delayed_until is None else max(item.delayed_until, until)
        self._push_deadline(item.delayed_until, item)

    # --- attempts ---------------------------------------------------------------------------------------------

    def attempts_of(self, element: str, group: str | None) -> Attempts:
        return self.attempts.get(element, _NONE).get(group, _FRESH)

    def set_attempts(self, element: str, group: str | None, attempts: Attempts | None) -> None:
        """What went wrong so far; None forgets it."""
        if attempts is not None:
            self.attempts.setdefault(element, {})[group] = attempts
            return
        kept = self.attempts.get(element, {})
        kept.pop(group, None)
        if not kept:
            self.attempts.pop(element, None)

    def has_orphaned_attempts(self, element: str, group: str | None) -> bool:
        """Whether the group remembers failures of an element which none of its pools wants any more (B33)."""
        if group not in self.attempts.get(element, _NONE):
            return False
        return all(place.pool.group.name != group for place in self.entries_of(element))

    # --- time -------------------------------------------------------------------------------------------------

    def extend_lease(self, delivery: Delivery, deadline: float) -> None:
        delivery.deadline = deadline
        self._push_deadline(deadline, delivery)

    def _push_deadline(self, moment: float, who: Delivery | QueuedElement) -> None:
        self._deadline_count += 1
        heappush(self._deadlines, (moment, self._deadline_count, who))
        if len(self._deadlines) > self._agenda_bound:
            self._deadlines = [entry for entry in self._deadlines if _stands(entry[0], entry[2])]
            heapify(self._deadlines)
            self._agenda_bound = 2 * len(self._deadlines) + _SPARE

    @property
    def next_deadline(self) -> float | None:
        """When something is due next."""
        agenda = self._deadlines
        while agenda and not _stands(agenda[0][0], agenda[0][2]):
            heappop(agenda)
        return agenda[0][0] if agenda else None

    def pop_due(self, now: float) -> Iterator[Delivery | QueuedElement]:
        """Deliveries whose lease has run out, for the caller to end, and items whose delay is over."""
        while (moment := self.next_deadline) is not None and moment <= now:
            who = heappop(self._deadlines)[2]
            if isinstance(who, QueuedElement):
                who.delayed_until = None
                if who.is_available:
                    self._enqueue(who)
            yield who

    def clear(self) -> None:
        """The database is closed: nothing that is known to each other stays so."""
        items = [place.queued_element for place in self._entries.values() if place.queued_element is not None]
        for item in (*items, *self._unmatched.values()):
            for place in item.entries:
                place.queued_element = None
            item.entries, item.delivery = (), None
        self._entries.clear()
        self._unmatched.clear()
        self.deliveries.clear()
        self._deadlines.clear()
        for group in self.groups.values():
            for member in group.members:
                member.deliveries.clear()
            for pool in group.pools:
                pool.clear()

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self, pools: Iterable[MatchQueue]) -> None:
        """Raise AssertionError unless claims, places and counts agree."""
        for pool in pools:
            pool.validate()
        for id, delivery in self.deliveries.items():
            assert delivery.id == id
            assert delivery.is_open
            assert delivery.queued_element.delivery is delivery
            assert delivery.consumer.deliveries[id] is delivery
        for element, first in self._entries.items():
            assert first.element == element
            assert first.has_match
            item = first.queued_element
            if item is not None:
                assert item.entries[0] is first
                assert not item.is_idle
                assert all(place.queued_element is item for place in item.entries)
        for element, item in self._unmatched.items():
            assert item.element == element
            assert element not in self._entries
            assert not item.entries
            assert item.delivery is not None
        for group in self.groups.values():
            assert group.in_flight == sum(len(member.deliveries) for member in group.members)


_NONE: dict[str | None, Attempts] = {}
_FRESH = Attempts()


def _stands(moment: float, who: Delivery | QueuedElement) -> bool:
    if isinstance(who, Delivery):
        return who.is_open and who.deadline == moment
    return who.delayed_until == moment
