"""Decides which consumer receives which element. Pure: time, ids and durability are parameters.

Threading: call every method with the engine lock held. Durability is expressed as a commit sequence: an element
that is requeued is not delivered before that commit is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vedette.queue.delivery import Attempts, DeliveryEvent
from vedette.queue.entry import Delivery, QueuedElement, QueuedMatch, QueueEntry
from vedette.queue.group import Consumer, ConsumerGroup
from vedette.queue.leases import DeadlineHeap
from vedette.queue.match_queue import MatchQueue

__all__ = ["Dispatcher"]


class Dispatcher:
    """All queues, consumers and deliveries of one database.

    Invariants (see `validate`): an element has at most one open delivery; an entry is in a line only if its element
    is available; `group.in_flight` is the number of open deliveries of the group's consumers.
    """

    def __init__(self, new_id: Callable[[], str], seconds_until: Callable[[int], float]) -> None:
        """`seconds_until` returns the seconds until a wall-clock time in milliseconds since 1970."""
        self._new_id, self._seconds_until = new_id, seconds_until
        self._entries: dict[str, QueueEntry] = {}
        """Element ▸ its first entry. Further entries are listed in the entry's `QueuedElement`."""
        self._unmatched: dict[str, QueuedElement] = {}
        """Element ▸ its `QueuedElement`, while it is delivered but no longer matches any queue."""
        self.deliveries: dict[str, Delivery] = {}
        """Open deliveries by id."""
        self.groups: dict[Hashable, ConsumerGroup] = {}
        self.attempts: dict[str, dict[str | None, Attempts]] = {}
        """Element ▸ group ▸ failed attempts."""
        self._arrivals = 0
        self._deadlines = DeadlineHeap()
        self.key_freed: Callable[[ConsumerGroup], None] = lambda _: None
        """Called when a group unblocks a serialization key, because the next entry of that key may be deliverable."""

    # --- consumers --------------------------------------------------------------------------------------------

    def group(self, key: Hashable, name: str | None) -> ConsumerGroup:
        if key not in self.groups:
            self.groups[key] = ConsumerGroup(key, name)
        return self.groups[key]

    def add_consumer(self, consumer: Consumer, queue: MatchQueue) -> None:
        if consumer not in consumer.group.consumers:
            consumer.group.consumers.append(consumer)
        queue.consumers.append(consumer)
        consumer.queue = queue

    def detach_consumer(self, consumer: Consumer) -> MatchQueue | None:
        """Stop delivering to the consumer.

        Return its queue if it has no other consumer; the caller ends open deliveries.
        """
        queue, group = consumer.queue, consumer.group
        consumer.queue = None
        if queue is None:
            return None
        queue.consumers.remove(consumer)
        if queue.consumers:
            return None
        group.queues.remove(queue)
        for entry in list(queue.entries):
            self._remove_entry(entry)
        queue.clear()
        return queue

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove the consumer from its group."""
        consumer.group.consumers.remove(consumer)
        self.remove_empty_group(consumer.group)

    def remove_empty_group(self, group: ConsumerGroup) -> None:
        if not group.consumers:
            del self.groups[group.key]

    # --- matches ----------------------------------------------------------------------------------------------

    def add_match(
        self,
        queue: MatchQueue,
        element: str,
        match: QueuedMatch | None,
        *,
        sequence: int,
        tick: int,
        now: float,
    ) -> None:
        """Add or replace a match of the element.

        With `match=None` row and rank are computed when they are needed.
        """
        entry = self.entry_in(queue, element)
        if entry is None:
            self._arrivals += 1
            entry = queue.add_entry(element, self._arrivals)
            self._enter(entry, now)
        queue.set_match(entry, match)
        entry.sequence, entry.tick = sequence, tick
        queue.add(entry)
        if queue.is_serialized:
            self._block_key(entry)
        held = entry.queued_element.delivery if entry.queued_element is not None else None
        if held is not None and held.is_withdrawn and held.entry.queue is queue:
            held.entry, held.is_withdrawn = entry, False  # the element matches again

    def reorder(self, entry: QueueEntry, sequence: int) -> None:
        """Rank the entry again once commit `sequence` is durable. It does not wait for another tick."""
        entry.queue.remove(entry)
        entry.sequence = sequence
        entry.queue.enqueue(entry)

    def _enter(self, entry: QueueEntry, now: float) -> None:
        element = entry.element
        first = self._entries.get(element)
        if first is not None:
            self._queued_element(first).add_entry(entry)
            return
        self._entries[element] = entry
        item = self._unmatched.pop(element, None)
        if item is not None:
            item.add_entry(entry)
        elif self.attempts:
            self._restore_attempts(entry, now)

    def _restore_attempts(self, entry: QueueEntry, now: float) -> None:
        """Apply stored delays and parking from earlier processes or consumers."""
        for attempts in self.attempts.get(entry.element, {}).values():
            left = self._seconds_until(attempts.until_ms) if attempts.until_ms else 0.0
            if attempts.parked:
                self._queued_element(entry).parked = True
            if left > 0:
                self._set_delay(self._queued_element(entry), now + left)

    def entries_of(self, element: str) -> Sequence[QueueEntry]:
        """All entries of an element."""
        first = self._entries.get(element)
        if first is None:
            return ()
        return first.queued_element.entries if first.queued_element is not None else (first,)

    def warm(self, elements: Sequence[str]) -> None:
        """Look up the entries back to back, so that they are in the CPU cache when they are removed."""
        entries = self._entries
        _ = [element in entries for element in elements]

    def entry_in(self, queue: MatchQueue, element: str) -> QueueEntry | None:
        for entry in self.entries_of(element):
            if entry.queue is queue:
                return entry
        return None

    def _queued_element(self, entry: QueueEntry) -> QueuedElement:
        """Return the `QueuedElement` of the entry; create it if needed."""
        item = entry.queued_element
        if item is None:
            item = entry.queued_element = QueuedElement(entry)
        return item

    def _discard_if_idle(self, item: QueuedElement) -> None:
        """Drop the `QueuedElement` if the element is again only waiting in one queue."""
        if item.is_idle:
            (entry,) = item.entries
            entry.queued_element = None

    def remove_match(self, queue: MatchQueue, element: str, identity: Any) -> Delivery | None:
        """Remove one match. Return a delivery that was withdrawn by this, for the caller to report."""
        entry = self.entry_in(queue, element)
        if entry is None:
            return None
        stood = entry.is_in_line
        queue.remove(entry)
        if not entry.remove_match(identity):
            return self._remove_entry(entry)
        if stood:
            queue.enqueue(entry)
        if queue.is_serialized:
            self._block_key(entry)
        return None

    def _block_key(self, entry: QueueEntry) -> None:
        """While the element is unavailable, block its serialization key."""
        item = entry.queued_element
        if item is not None and not item.is_available and not item.parked:
            self._hold_key(item, entry.queue.group, entry.serialization_key)

    def _remove_entry(self, entry: QueueEntry) -> Delivery | None:
        item, queue = entry.queued_element, entry.queue
        queue.remove(entry)
        queue.drop_entry(entry)
        if item is None:
            del self._entries[entry.element]
            return None
        item.remove_entry(entry)
        if item.entries:
            self._entries[entry.element] = item.entries[0]
        else:
            del self._entries[entry.element]
        delivery = item.delivery
        withdrawn = None
        if delivery is not None and delivery.entry is entry and not delivery.is_withdrawn:
            delivery.is_withdrawn = True
            withdrawn = delivery
        if item.entries:
            self._discard_if_idle(item)
        elif delivery is not None:
            self._unmatched[item.element] = item
        else:
            self._forget_element(item)
        return withdrawn

    def _forget_element(self, item: QueuedElement) -> None:
        self._free_keys(item)
        item.delayed_until = None
        self._unmatched.pop(item.element, None)

    # --- delivery ---------------------------------------------------------------------------------------------

    def deliver(
        self, consumer: Consumer, limit: int | None, *, durable: int, now: float, lease: float
    ) -> list[Delivery]:
        """Claim up to `limit` elements for the consumer, best rank first, within its fair share and limits."""
        queue = consumer.queue
        if queue is None:
            return []
        queue.admit_durable(durable)
        handed: list[Delivery] = []
        share = consumer.fair_share(limit)
        while entries := queue.pop(share - len(handed)):
            matches = queue.rows(entries)
            for entry, match in zip(entries, matches, strict=True):
                handed.append(self._claim(entry, match, consumer, now + lease))
        return handed

    def _claim(
        self, entry: QueueEntry, match: Mapping[str, Any], consumer: Consumer, deadline: float
    ) -> Delivery:
        item = self._queued_element(entry)
        attempt = 1 + self.attempts_of(item.element, consumer.group.name).total
        delivery = Delivery(self._new_id(), item, entry, match, consumer, deadline=deadline, attempt=attempt)
        item.delivery = delivery
        for other in item.entries:
            other.queue.remove(other)
            if other.queue.is_serialized:
                self._hold_key(item, other.queue.group, other.serialization_key)
        self.deliveries[delivery.id] = consumer.deliveries[delivery.id] = delivery
        consumer.group.in_flight += 1
        self._deadlines.push(deadline, delivery)
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

    # --- ending deliveries ------------------------------------------------------------------------------------

    def finish(self, delivery: Delivery, event: DeliveryEvent) -> bool:
        """End a delivery whose element is deleted. Return False if it had already ended."""
        if not delivery.apply(event):
            return False
        self._close_delivery(delivery)
        if delivery.queued_element.entries:
            self._discard_if_idle(delivery.queued_element)
        else:
            self._forget_element(delivery.queued_element)
        return True

    def requeue(self, delivery: Delivery, *, sequence: int, until: float | None = None) -> bool:
        """End the delivery.

        Its element is deliverable again when `sequence` is durable and the delay has passed.
        """
        if not delivery.apply(DeliveryEvent.REQUEUE):
            return False
        self._close_delivery(delivery)
        item = delivery.queued_element
        if not item.entries:
            self._forget_element(item)
            return True
        for entry in item.entries:
            entry.sequence = max(entry.sequence, sequence)
        if until is not None:
            self.delay(item, until)
        else:
            self._enqueue(item)
        return True

    def park(self, delivery: Delivery) -> bool:
        """End the delivery and keep its element out of delivery until `unpark`, because it could not be
        dead-lettered.
        """
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
            for entry in item.entries:
                entry.sequence = max(entry.sequence, sequence)
            if item.is_available:
                self._enqueue(item)

    def _close_delivery(self, delivery: Delivery) -> None:
        delivery.queued_element.delivery = None
        del self.deliveries[delivery.id]
        del delivery.consumer.deliveries[delivery.id]
        delivery.consumer.group.in_flight -= 1

    def _enqueue(self, item: QueuedElement) -> None:
        self._free_keys(item)
        for entry in item.entries:
            entry.queue.enqueue(entry)
        self._discard_if_idle(item)

    def delay(self, item: QueuedElement, until: float) -> None:
        """Delay delivery of the element. With `serialize_by`, entries with the same key wait as well."""
        self._set_delay(item, until)
        for entry in item.entries:
            entry.queue.remove(entry)
            if entry.queue.is_serialized:
                self._hold_key(item, entry.queue.group, entry.serialization_key)

    def _set_delay(self, item: QueuedElement, until: float) -> None:
        item.delayed_until = until if item.delayed_until is None else max(item.delayed_until, until)
        self._deadlines.push(item.delayed_until, item)

    # --- attempts ---------------------------------------------------------------------------------------------

    def attempts_of(self, element: str, group: str | None) -> Attempts:
        return self.attempts.get(element, _NONE).get(group, _FRESH)

    def set_attempts(self, element: str, group: str | None, attempts: Attempts | None) -> None:
        """Set the attempts of an element in a group; None clears them."""
        if attempts is not None:
            self.attempts.setdefault(element, {})[group] = attempts
            return
        kept = self.attempts.get(element, {})
        kept.pop(group, None)
        if not kept:
            self.attempts.pop(element, None)

    def has_orphaned_attempts(self, element: str, group: str | None) -> bool:
        """True if the group has attempts of an element that matches none of its queues."""
        if group not in self.attempts.get(element, _NONE):
            return False
        return all(entry.queue.group.name != group for entry in self.entries_of(element))

    # --- time -------------------------------------------------------------------------------------------------

    def extend_lease(self, delivery: Delivery, deadline: float) -> None:
        delivery.deadline = deadline
        self._deadlines.push(deadline, delivery)

    @property
    def next_deadline(self) -> float | None:
        """When the next lease or delay ends, on the monotonic clock."""
        return self._deadlines.next_deadline()

    def pop_due(self, now: float) -> Iterator[Delivery | QueuedElement]:
        """Yield deliveries with expired leases, for the caller to end, and elements whose delay ended.

        The elements are enqueued before they are yielded.
        """
        while (due := self._deadlines.pop_due(now)) is not None:
            if isinstance(due, QueuedElement):
                due.delayed_until = None
                if due.is_available:
                    self._enqueue(due)
            yield due

    def clear(self) -> None:
        """Break reference cycles when the database is closed."""
        items = [entry.queued_element for entry in self._entries.values() if entry.queued_element is not None]
        for item in (*items, *self._unmatched.values()):
            for entry in item.entries:
                entry.queued_element = None
            item.entries, item.delivery = (), None
        self._entries.clear()
        self._unmatched.clear()
        self.deliveries.clear()
        self._deadlines.clear()
        for group in self.groups.values():
            for consumer in group.consumers:
                consumer.deliveries.clear()
            for queue in group.queues:
                queue.clear()

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self, queues: Iterable[MatchQueue]) -> None:
        """Raise AssertionError unless claims, entries and counts agree. For tests."""
        for queue in queues:
            queue.validate()
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
                assert all(entry.queued_element is item for entry in item.entries)
        for element, item in self._unmatched.items():
            assert item.element == element
            assert element not in self._entries
            assert not item.entries
            assert item.delivery is not None
        for group in self.groups.values():
            assert group.in_flight == sum(len(consumer.deliveries) for consumer in group.consumers)


_NONE: dict[str | None, Attempts] = {}
_FRESH = Attempts()
