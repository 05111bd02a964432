"""The desk where work is handed out and taken back: claims, leases, attempts. It decides; the engine carries out.

Every element is known once, whoever waits for it. Time is a number that the caller brings; what must be durable before
an item is handed out again is a number as well, the sequence of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from vedette.queue.entry import Attempts, Delivery, DeliveryEvent, Place, Want, WorkItem
from vedette.queue.match_queue import Group, Member, Pool

__all__ = ["Desk"]

_SPARE = 1024
"""So many appointments are no reason to look which of them came to nothing."""


class Desk:
    """All consume watches of one database."""

    def __init__(self, new_id: Callable[[], str], seconds_until: Callable[[int], float]) -> None:
        """`seconds_until`: how long until a moment of the day, given in milliseconds since 1970."""
        self._new_id, self._seconds_until = new_id, seconds_until
        self._places: dict[str, Place] = {}
        """Element ▸ the first of its places; its item, where it has one, knows the others."""
        self._placeless: dict[str, WorkItem] = {}
        """Element ▸ its item, while somebody holds what matches nowhere any more."""
        self.deliveries: dict[str, Delivery] = {}
        """Those that have not ended, by id."""
        self.groups: dict[Hashable, Group] = {}
        self.attempts: dict[str, dict[str | None, Attempts]] = {}
        """Element ▸ group ▸ what went wrong so far."""
        self._arrivals = 0
        self._agenda: list[tuple[float, int, Delivery | WorkItem]] = []
        """Leases and delays by the moment they end; those that ended otherwise are void."""
        self._agenda_bound = _SPARE
        """So long it may become before the void ones are taken out."""
        self._appointments = 0
        self.key_freed: Callable[[Group], None] = lambda _: None
        """Called when a group has let go of a key (serialize_by): who waits for it may have a turn."""

    # --- consumers --------------------------------------------------------------------------------------------

    def group(self, key: Hashable, name: str | None) -> Group:
        if key not in self.groups:
            self.groups[key] = Group(key, name)
        return self.groups[key]

    def join(self, member: Member, pool: Pool) -> None:
        if member not in member.group.members:
            member.group.members.append(member)
        pool.members.append(member)
        member.pool = pool

    def leave(self, member: Member) -> Pool | None:
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

    def part(self, member: Member) -> None:
        """The member is gone for good."""
        member.group.members.remove(member)
        self.forget_empty(member.group)

    def forget_empty(self, group: Group) -> None:
        if not group.members:
            del self.groups[group.key]

    # --- matches come and go ----------------------------------------------------------------------------------

    def offer(
        self, pool: Pool, element: str, want: Want | None, *, sequence: int, tick: int, now: float
    ) -> None:
        """The element matches, or matches otherwise than before. Without a want the pool looks at it late."""
        place = self.place_in(pool, element)
        if place is None:
            self._arrivals += 1
            place = pool.add_place(element, self._arrivals)
            self._enter(place, now)
        pool.put(place, want)
        place.sequence, place.tick = sequence, tick
        pool.come(place)
        if pool.serialized:
            self._keep_key(place)
        held = place.item.delivery if place.item is not None else None
        if held is not None and held.withdrawn and held.place.pool is pool:
            held.place, held.withdrawn = place, False  # it matches again

    def rank_anew(self, place: Place, sequence: int) -> None:
        """It may stand elsewhere in line from that commit on. It matched before, and waits for no other tick."""
        place.pool.step_out(place)
        place.sequence = sequence
        place.pool.arrive(place)

    def _enter(self, place: Place, now: float) -> None:
        element = place.element
        first = self._places.get(element)
        if first is not None:
            self._item_of(first).enter(place)
            return
        self._places[element] = place
        item = self._placeless.pop(element, None)
        if item is not None:
            item.enter(place)
        elif self.attempts:
            self._remember(place, now)

    def _remember(self, place: Place, now: float) -> None:
        """What an earlier process, or an earlier consumer, left: delays and parked items."""
        for attempts in self.attempts.get(place.element, {}).values():
            left = self._seconds_until(attempts.until_ms) if attempts.until_ms else 0.0
            if attempts.parked:
                self._item_of(place).parked = True
            if left > 0:
                self._postpone(self._item_of(place), now + left)

    def places_of(self, element: str) -> Sequence[Place]:
        """Where an element stands."""
        first = self._places.get(element)
        if first is None:
            return ()
        return first.item.places if first.item is not None else (first,)

    def approach(self, elements: Sequence[str]) -> None:
        """Look up those who will leave, one right after the other (see `Graph.fetch`)."""
        places = self._places
        _ = [element in places for element in elements]

    def place_in(self, pool: Pool, element: str) -> Place | None:
        for place in self.places_of(element):
            if place.pool is pool:
                return place
        return None

    def _item_of(self, place: Place) -> WorkItem:
        """Its element is more than a place from now on."""
        item = place.item
        if item is None:
            item = place.item = WorkItem(place)
        return item

    def _rest(self, item: WorkItem) -> None:
        """What makes it more than its place is over, perhaps."""
        if item.ordinary:
            (place,) = item.places
            place.item = None

    def withdraw(self, pool: Pool, element: str, identity: Any) -> Delivery | None:
        """A match is gone. Returns the delivery whose holder should be told that there is nothing to do any more."""
        place = self.place_in(pool, element)
        if place is None:
            return None
        stood = place.waiting
        pool.step_out(place)
        if not place.drop(identity):
            return self._remove_place(place)
        if stood:
            pool.arrive(place)
        if pool.serialized:
            self._keep_key(place)
        return None

    def _keep_key(self, place: Place) -> None:
        """While it cannot be handed out, those behind it under its key wait with it."""
        item = place.item
        if item is not None and not item.available and not item.parked:
            self._hold_key(item, place.pool.group, place.serial)

    def _remove_place(self, place: Place) -> Delivery | None:
        item, pool = place.item, place.pool
        pool.step_out(place)
        pool.let_go(place)
        if item is None:
            del self._places[place.element]
            return None
        item.leave(place)
        if item.places:
            self._places[place.element] = item.places[0]
        else:
            del self._places[place.element]
        delivery = item.delivery
        told = None
        if delivery is not None and delivery.place is place and not delivery.withdrawn:
            delivery.withdrawn = True
            told = delivery
        if item.places:
            self._rest(item)
        elif delivery is not None:
            self._placeless[item.element] = item
        else:
            self._drop(item)
        return told

    def _drop(self, item: WorkItem) -> None:
        self._free_keys(item)
        item.until = None
        self._placeless.pop(item.element, None)

    # --- handing out ------------------------------------------------------------------------------------------

    def hand_out(
        self, member: Member, limit: int | None, *, durable: int, now: float, lease: float
    ) -> list[Delivery]:
        """Claims for one poll, in order."""
        pool = member.pool
        if pool is None:
            return []
        pool.settle(durable)
        handed: list[Delivery] = []
        share = member.share(limit)
        while places := pool.pop(share - len(handed)):
            matches = pool.matches(places)
            for place, match in zip(places, matches, strict=True):
                handed.append(self._claim(place, match, member, now + lease))
        return handed

    def _claim(self, place: Place, match: Mapping[str, Any], member: Member, deadline: float) -> Delivery:
        item = self._item_of(place)
        attempt = 1 + self.attempts_of(item.element, member.group.name).total
        delivery = Delivery(self._new_id(), item, place, match, member, deadline=deadline, attempt=attempt)
        item.delivery = delivery
        for other in item.places:
            other.pool.step_out(other)
            if other.pool.serialized:
                self._hold_key(item, other.pool.group, other.serial)
        self.deliveries[delivery.id] = member.held[delivery.id] = delivery
        member.group.held += 1
        self._appoint(deadline, delivery)
        return delivery

    def _hold_key(self, item: WorkItem, group: Group, key: Hashable) -> None:
        if (group, key) not in item.held_keys:
            item.held_keys = (*item.held_keys, (group, key))
            group.hold(key)

    def _free_keys(self, item: WorkItem) -> None:
        held, item.held_keys = item.held_keys, ()
        for group, key in held:
            group.let_go(key)
            self.key_freed(group)

    # --- taking back ------------------------------------------------------------------------------------------

    def finish(self, delivery: Delivery, event: DeliveryEvent) -> bool:
        """The delivery ends; its element is gone, or going. False when it had ended already."""
        if not delivery.happen(event):
            return False
        self._release(delivery)
        if delivery.item.places:
            self._rest(delivery.item)
        else:
            self._drop(delivery.item)
        return True

    def give_back(self, delivery: Delivery, *, sequence: int, until: float | None = None) -> bool:
        """The delivery ends and its element may be handed out again, when `sequence` is durable and it is time."""
        if not delivery.happen(DeliveryEvent.RETURN):
            return False
        self._release(delivery)
        item = delivery.item
        if not item.places:
            self._drop(item)
            return True
        for place in item.places:
            place.sequence = max(place.sequence, sequence)
        if until is not None:
            self.delay(item, until)
        else:
            self._make_available(item)
        return True

    def park(self, delivery: Delivery) -> bool:
        """It can neither be handed out nor buried: kept as it is."""
        if not delivery.happen(DeliveryEvent.BURY):
            return False
        self._release(delivery)
        delivery.item.parked = True
        self._free_keys(delivery.item)
        return True

    def unpark(self, element: str, sequence: int) -> None:
        first = self._places.get(element)
        item = first.item if first is not None else None
        if item is not None:
            item.parked = False
            for place in item.places:
                place.sequence = max(place.sequence, sequence)
            if item.available:
                self._make_available(item)

    def _release(self, delivery: Delivery) -> None:
        delivery.item.delivery = None
        del self.deliveries[delivery.id]
        del delivery.member.held[delivery.id]
        delivery.member.group.held -= 1

    def _make_available(self, item: WorkItem) -> None:
        self._free_keys(item)
        for place in item.places:
            place.pool.arrive(place)
        self._rest(item)

    def delay(self, item: WorkItem, until: float) -> None:
        """Hand it out later; what stands behind it under the same key waits as well."""
        self._postpone(item, until)
        for place in item.places:
            place.pool.step_out(place)
            if place.pool.serialized:
                self._hold_key(item, place.pool.group, place.serial)

    def _postpone(self, item: WorkItem, until: float) -> None:
        item.until = until if item.until is None else max(item.until, until)
        self._appoint(item.until, item)

    # --- attempts ---------------------------------------------------------------------------------------------

    def attempts_of(self, element: str, group: str | None) -> Attempts:
        return self.attempts.get(element, _NONE).get(group, _FRESH)

    def record(self, element: str, group: str | None, attempts: Attempts | None) -> None:
        """What went wrong so far; None forgets it."""
        if attempts is not None:
            self.attempts.setdefault(element, {})[group] = attempts
            return
        kept = self.attempts.get(element, {})
        kept.pop(group, None)
        if not kept:
            self.attempts.pop(element, None)

    def outlived(self, element: str, group: str | None) -> bool:
        """Whether the group remembers failures of an element which none of its pools wants any more (B33)."""
        if group not in self.attempts.get(element, _NONE):
            return False
        return all(place.pool.group.name != group for place in self.places_of(element))

    # --- time -------------------------------------------------------------------------------------------------

    def extend(self, delivery: Delivery, deadline: float) -> None:
        delivery.deadline = deadline
        self._appoint(deadline, delivery)

    def _appoint(self, moment: float, who: Delivery | WorkItem) -> None:
        self._appointments += 1
        heappush(self._agenda, (moment, self._appointments, who))
        if len(self._agenda) > self._agenda_bound:
            self._agenda = [entry for entry in self._agenda if _stands(entry[0], entry[2])]
            heapify(self._agenda)
            self._agenda_bound = 2 * len(self._agenda) + _SPARE

    @property
    def next_moment(self) -> float | None:
        """When something is due next."""
        agenda = self._agenda
        while agenda and not _stands(agenda[0][0], agenda[0][2]):
            heappop(agenda)
        return agenda[0][0] if agenda else None

    def due(self, now: float) -> Iterator[Delivery | WorkItem]:
        """Deliveries whose lease has run out, for the caller to end, and items whose delay is over."""
        while (moment := self.next_moment) is not None and moment <= now:
            who = heappop(self._agenda)[2]
            if isinstance(who, WorkItem):
                who.until = None
                if who.available:
                    self._make_available(who)
            yield who

    def clear(self) -> None:
        """The database is closed: nothing that is known to each other stays so."""
        items = [place.item for place in self._places.values() if place.item is not None]
        for item in (*items, *self._placeless.values()):
            for place in item.places:
                place.item = None
            item.places, item.delivery = (), None
        self._places.clear()
        self._placeless.clear()
        self.deliveries.clear()
        self._agenda.clear()
        for group in self.groups.values():
            for member in group.members:
                member.held.clear()
            for pool in group.pools:
                pool.clear()

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self, pools: Iterable[Pool]) -> None:
        """Raise AssertionError unless claims, places and counts agree."""
        for pool in pools:
            pool.validate()
        for id, delivery in self.deliveries.items():
            assert delivery.id == id
            assert delivery.open
            assert delivery.item.delivery is delivery
            assert delivery.member.held[id] is delivery
        for element, first in self._places.items():
            assert first.element == element
            assert first.wanted
            item = first.item
            if item is not None:
                assert item.places[0] is first
                assert not item.ordinary
                assert all(place.item is item for place in item.places)
        for element, item in self._placeless.items():
            assert item.element == element
            assert element not in self._places
            assert not item.places
            assert item.delivery is not None
        for group in self.groups.values():
            assert group.held == sum(len(member.held) for member in group.members)


_NONE: dict[str | None, Attempts] = {}
_FRESH = Attempts()


def _stands(moment: float, who: Delivery | WorkItem) -> bool:
    if isinstance(who, Delivery):
        return who.open and who.deadline == moment
    return who.until == moment
