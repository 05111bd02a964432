"""Consume-mode watches of one database: consumers join and leave, receive deliveries, and are woken.

A consume watch is a consumer of a `MatchQueue`, alone or with the other consumers of its group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from vedette.engine.queue_service.dead_letters import DeadLetters
from vedette.engine.queue_service.matcher import QueueMatcher
from vedette.engine.queue_service.settlement import Settlement
from vedette.engine.state.graph_state import Commit
from vedette.errors import VedetteError
from vedette.queue.delivery import DeliveryState
from vedette.queue.dispatcher import Dispatcher
from vedette.queue.entry import Delivery
from vedette.queue.group import Consumer, ConsumerGroup
from vedette.queue.match_queue import MatchQueue
from vedette.queue.reports import Withdrawal
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import BufferedEvent
from vedette.watch.delta import Delta, value_key
from vedette.watch.shape_index import ShapeIndex
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watch_service.service import WatchService

__all__ = ["QueueService"]


class QueueService:
    """The queues, consumers and deliveries of a database. Call every method with the engine lock held."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching
        self._database = watching.database
        self._issued = 0
        self.dispatcher = Dispatcher(self._new_delivery, self._seconds_until)
        self.dispatcher.key_freed = lambda group: self.notify_when_durable(
            group.queues, self._database.state.sequence
        )
        self.settlement = Settlement(self)
        self.dead_letters = DeadLetters(self)
        self.matcher = QueueMatcher(self)
        self.consumers: dict[int, Consumer] = {}
        """By the number of the user's watch."""
        self._queues: dict[Hashable, MatchQueue] = {}
        self._queue_keys: dict[int, Hashable] = {}
        self.dead_letter_destinations: dict[int, str] = {}
        """Where dead letters go, by the number of the user's watch."""
        self._redeliver: dict[int, list[Delivery]] = {}
        """Deliveries to send again under the same ids, because their consumer has reattached."""

    @property
    def watching(self) -> WatchService:
        return self._watching

    @property
    def shape_index(self) -> ShapeIndex:
        """The internal watches, one per queue."""
        return self.matcher.shape_index

    def _new_delivery(self) -> str:
        self._issued += 1
        return f"d{self._database.boot:x}_{self._issued:x}"

    def _seconds_until(self, moment_ms: int) -> float:
        return (moment_ms - timestamp_to_ms(self._database.clock.now())) / 1000

    @property
    def now(self) -> float:
        return self._database.clock.monotonic()

    # --- consumers --------------------------------------------------------------------------------------------

    def add_consumer(self, watch: Watch) -> None:
        """Register a new consume watch. Its first event is an empty `initial`; deliveries follow."""
        options = watch.options
        key: Hashable = ("group", options.group) if options.group is not None else ("watch", watch.number)
        group = self.dispatcher.group(key, options.group)
        consumer = self.consumers[watch.number] = Consumer(
            watch.number, group, bound=options.buffer, group_bound=options.max_in_flight, watch=watch
        )
        try:
            queue = self._queue_for(watch, consumer)
        except VedetteError:
            del self.consumers[watch.number]
            self.dispatcher.remove_empty_group(group)
            raise
        self.dispatcher.add_consumer(consumer, queue)
        self._watching.committed_index.watches[watch.number] = watch
        if options.initial.kind == "full" and watch.position == 0:
            delta = Delta("initial", None)
            delta.matches = []
            state = self._database.state
            watch.append_event(delta, state.tick, state.sequence, watch.created_ms)
        self.update_consumer(watch)

    def _queue_for(self, watch: Watch, consumer: Consumer) -> MatchQueue:
        key = self._key(watch, consumer.group)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self.matcher.open_queue(watch, consumer)
            self._queue_keys[queue.feed.number] = key
        return queue

    def _key(self, watch: Watch, group: ConsumerGroup) -> Hashable:
        """The key of the queue. Equal watches of a named group share a queue, except with `initial: none`."""
        options = watch.options
        own = watch.number if options.initial.kind == "none" or group.name is None else None
        return (
            group.name,
            watch.shape,
            value_key(list(watch.constants)),
            watch.actor,
            options.deliver_on,
            own,
        )

    def update_consumer(self, watch: Watch) -> None:
        """Apply a changed status, option or owner of the watch."""
        consumer = self.consumers.get(watch.number)
        if consumer is None:
            return
        consumer.active = watch.status is WatchStatus.ACTIVE and watch.session_id is not None
        consumer.max_unacked = watch.options.buffer
        self.notify_consumers(consumer.queue)

    def remove_consumer(self, watch: Watch, *, lost: bool = False) -> None:
        """Remove a consumer.

        After a clean end its claims are released; if it was lost, each claim counts as a failure.
        """
        consumer = self.consumers.pop(watch.number, None)
        if consumer is None:
            return
        consumer.active = False
        self._redeliver.pop(watch.number, None)
        for delivery in list(consumer.deliveries.values()):
            self.settlement.end_for_consumer(delivery, lost=lost)
        queue = consumer.queue
        self._close_empty(self.dispatcher.detach_consumer(consumer))
        self.dispatcher.remove_consumer(consumer)
        self.dead_letter_destinations.pop(watch.number, None)
        self.notify_consumers(queue)

    def _close_empty(self, queue: MatchQueue | None) -> None:
        if queue is not None:
            self.matcher.close_queue(queue)
            self._queues.pop(self._queue_keys.pop(queue.feed.number), None)

    def change_filter(self, watch: Watch) -> None:
        """Move the watch to the queue of its new filter. It keeps the deliveries it holds."""
        consumer = self.consumers[watch.number]
        fresh = self._queue_for(watch, consumer)
        if fresh is consumer.queue:
            return
        for delivery in consumer.deliveries.values():
            entry = self.dispatcher.entry_in(fresh, delivery.queued_element.element)
            if entry is not None:
                delivery.entry, delivery.is_withdrawn = entry, False
        wanted = [delivery for delivery in consumer.deliveries.values() if not delivery.is_withdrawn]
        closed = self.dispatcher.detach_consumer(consumer)
        self.dispatcher.add_consumer(consumer, fresh)
        self._close_empty(closed)
        for delivery in wanted:
            if delivery.is_withdrawn:
                self.report_withdrawal(delivery)

    def reattach_consumer(self, watch: Watch) -> None:
        """Reattach a reliable consumer: its pending deliveries are sent again under the same ids."""
        consumer = self.consumers.get(watch.number)
        if consumer is not None:
            pending = [d for d in consumer.deliveries.values() if d.state is DeliveryState.PENDING]
            self._redeliver[watch.number] = [d for d in pending if not d.is_withdrawn]
            for delivery in pending:
                if delivery.is_withdrawn:  # withdrawn, and the new reader does not know it: release it
                    self.settlement.end_for_consumer(delivery, lost=False)
            self.update_consumer(watch)

    # --- commits ----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return bool(self.matcher.queues) or bool(self.dispatcher.attempts)

    def committed(self, commit: Commit) -> None:
        """Apply a commit to attempts and queues."""
        if self.dispatcher.attempts:
            self._forget_deleted(commit)
        self.matcher.apply_commit(commit)

    def _forget_deleted(self, commit: Commit) -> None:
        """Delete the stored attempts of deleted elements, even if no consumer exists."""
        for before, after in commit.changes:
            if after is None and before is not None and before.id in self.dispatcher.attempts:
                for group in list(self.dispatcher.attempts[before.id]):
                    self.settlement.clear_attempts(before.id, group)

    def report_withdrawal(self, delivery: Delivery) -> None:
        """Inform the holder that the element no longer matches, unless it has acknowledged the delivery already."""
        if delivery.state is DeliveryState.PENDING:
            delivery.consumer.watch.details.add_error(
                Withdrawal(delivery.id, delivery.queued_element.element)
            )
            self._wake_watch(delivery.consumer.watch)

    def rebuild(self, meta: dict[str, str]) -> None:
        """Reload attempts and dead letters after the state was reloaded from the store."""
        self.dispatcher.attempts.clear()
        self.dead_letters.letters.clear()
        self.settlement.restore(meta)
        self.dead_letters.restore(meta)
        self.refresh_all()

    def refresh_all(self, shapes: Iterable[WatchShape] | None = None) -> None:
        """Re-evaluate queues after a schema change, a reload of the state, or a Layer 0 change."""
        self.matcher.refresh_all(shapes)

    def update_queue_key(self, queue: MatchQueue) -> None:
        """Update the queue key and the consumers after the shape was recompiled."""
        number = queue.feed.number
        del self._queues[self._queue_keys[number]]
        for consumer in queue.consumers:
            consumer.watch.shape = queue.feed.shape
        key = self._queue_keys[number] = self._key(queue.consumers[0].watch, queue.group)
        self._queues[key] = queue

    # --- delivery ---------------------------------------------------------------------------------------------

    def deliver(self, watch: Watch, limit: int | None) -> list[BufferedEvent]:
        """Return buffered events (`initial`) first, then new deliveries."""
        ready = watch.take_events(self._database.log_writer.durable_sequence, limit)
        consumer = self.consumers.get(watch.number)
        if consumer is None or watch.status is not WatchStatus.ACTIVE or self._database.read_only is not None:
            return ready  # read-only: nothing could be acknowledged
        self.settlement.expire_due()
        left = None if limit is None else limit - len(ready)
        again = self._redeliver.pop(watch.number, [])
        again = [d for d in again if d.state is DeliveryState.PENDING and not d.is_withdrawn]
        if left is not None and len(again) > left:
            self._redeliver[watch.number] = again[left:]
            again = again[:left]
        lease = watch.options.ack_timeout.total_seconds()
        for delivery in again:
            self.dispatcher.extend_lease(delivery, self.now + lease)
        handed = self.dispatcher.deliver(
            consumer,
            None if left is None else left - len(again),
            durable=self._database.log_writer.durable_sequence,
            now=self.now,
            lease=lease,
        )
        self.settlement.schedule_expiry()
        if again or handed:
            watch.last_event_ms = timestamp_to_ms(self._database.clock.now())
        ready.extend([self._entry(watch, delivery) for delivery in (*again, *handed)])
        return ready

    def unacknowledged_count(self, watch: Watch) -> int:
        """The number of deliveries its reader holds.

        Deliveries that will be sent again after a reattach are not counted.
        """
        consumer = self.consumers.get(watch.number)
        return (
            len(consumer.deliveries) - len(self._redeliver.get(watch.number, ()))
            if consumer is not None
            else 0
        )

    def _entry(self, watch: Watch, delivery: Delivery) -> BufferedEvent:
        watch.position += 1
        watch.delivered_count += 1
        delta = Delta("consumed", delivery.row)
        delta.delivery = (delivery.id, delivery.attempt)
        return BufferedEvent(watch.position, delivery.entry.sequence, delivery.entry.tick, delta)

    def ready_count(self, watch: Watch) -> int:
        """The number of entries in the line of the watch's queue."""
        consumer = self.consumers.get(watch.number)
        if consumer is None or consumer.queue is None:
            return 0
        consumer.queue.admit_durable(self._database.log_writer.durable_sequence)
        return len(consumer.queue)

    def notify_consumers(self, queue: MatchQueue | None) -> None:
        """Wake the consumers of the queue when everything committed so far is durable."""
        if queue is not None:
            self.notify_when_durable([queue], self._database.state.sequence)

    def notify_after(self, deliveries: Iterable[Delivery], sequence: int) -> None:
        """Wake consumers after deliveries ended: capacity is free, and requeued elements may be deliverable."""
        queues: dict[int, MatchQueue] = {}
        for delivery in deliveries:
            for queue in delivery.consumer.group.queues:
                queues[id(queue)] = queue
            for entry in delivery.queued_element.entries:
                queues[id(entry.queue)] = entry.queue
        if queues:
            self.notify_when_durable(queues.values(), sequence)

    def notify_when_durable(self, queues: Iterable[MatchQueue], sequence: int) -> None:
        waking = [
            consumer.watch.details.wakeup
            for queue in queues
            for consumer in queue.consumers
            if consumer.watch.has_details and consumer.watch.details.wakeup is not None
        ]
        if waking:
            self._database.log_writer.call_when_durable(
                sequence, lambda _: [wake() for wake in waking], flush_now=False
            )

    def _wake_watch(self, watch: Watch) -> None:
        if watch.details.wakeup is not None:
            watch.details.wakeup()

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError unless queues equal a fresh evaluation and the dispatcher is consistent.

        For tests.
        """
        self.matcher.validate()
