"""Consume watches of one database: who consumes, what they are handed, and when they are woken.

A consume watch is a member of a pool (`supply.py`), alone or with others of its group, and draws from it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from vedette.engine.queue_service.dead_letters import DeadLetters
from vedette.engine.queue_service.matcher import QueueMatcher
from vedette.engine.queue_service.settlement import Settlement
from vedette.engine.state.graph_state import Commit
from vedette.errors import VedetteError
from vedette.queue.dispatcher import Dispatcher
from vedette.queue.entry import Delivery, DeliveryState
from vedette.queue.match_queue import Consumer, ConsumerGroup, MatchQueue
from vedette.queue.notice import Withdrawal
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import BufferedEvent
from vedette.watch.delta import Delta, value_key
from vedette.watch.evaluation.effects import ShapeIndex
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watch_service.service import WatchService

__all__ = ["QueueService"]


class QueueService:
    """The consume side of a database. Called with the turn held."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching
        self._database = watching.database
        self._issued = 0
        self.dispatcher = Dispatcher(self._new_delivery, self._seconds_until)
        self.dispatcher.key_freed = lambda group: self.notify_when_durable(
            group.pools, self._database.state.sequence
        )
        self.deliveries = Settlement(self)
        self.dead_letters = DeadLetters(self)
        self.matcher = QueueMatcher(self)
        self.members: dict[int, Consumer] = {}
        """By the number of the user's watch."""
        self._pools: dict[Hashable, MatchQueue] = {}
        self._pool_keys: dict[int, Hashable] = {}
        self.dead_letter_destinations: dict[int, str] = {}
        """Where dead letters go, by the number of the user's watch."""
        self._redeliver: dict[int, list[Delivery]] = {}
        """Deliveries to hand out once more, under the same ids: their consumer came back."""

    @property
    def watching(self) -> WatchService:
        return self._watching

    @property
    def hub(self) -> ShapeIndex:
        """The engine's own watches, one for each pool."""
        return self.matcher.hub

    def _new_delivery(self) -> str:
        self._issued += 1
        return f"d{self._database.boot:x}_{self._issued:x}"

    def _seconds_until(self, moment_ms: int) -> float:
        return (moment_ms - timestamp_to_ms(self._database.clock.now())) / 1000

    @property
    def now(self) -> float:
        return self._database.clock.monotonic()

    # --- consumers come and go --------------------------------------------------------------------------------

    def add_consumer(self, watch: Watch) -> None:
        """A new consume watch: an empty `initial`, then whatever it may claim."""
        options = watch.options
        key: Hashable = ("group", options.group) if options.group is not None else ("watch", watch.number)
        group = self.dispatcher.group(key, options.group)
        member = self.members[watch.number] = Consumer(
            watch.number, group, bound=options.buffer, group_bound=options.max_in_flight, watch=watch
        )
        try:
            pool = self._pool_for(watch, member)
        except VedetteError:
            del self.members[watch.number]
            self.dispatcher.remove_empty_group(group)
            raise
        self.dispatcher.add_consumer(member, pool)
        self._watching.committed_index.watches[watch.number] = watch
        if options.initial.kind == "full" and watch.position == 0:
            delta = Delta("initial", None)
            delta.matches = []
            state = self._database.state
            watch.append_event(delta, state.tick, state.sequence, watch.created_ms)
        self.update_consumer(watch)

    def _pool_for(self, watch: Watch, member: Consumer) -> MatchQueue:
        key = self._key(watch, member.group)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = self.matcher.open_queue(watch, member)
            self._pool_keys[pool.feed.number] = key
        return pool

    def _key(self, watch: Watch, group: ConsumerGroup) -> Hashable:
        """Equal watches of a named group draw from one pool, unless they want only what comes after them."""
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
        """Its status, its options or its owner are others now."""
        member = self.members.get(watch.number)
        if member is None:
            return
        member.active = watch.status is WatchStatus.ACTIVE and watch.session_id is not None
        member.max_unacked = watch.options.buffer
        self.notify_consumers(member.pool)

    def remove_consumer(self, watch: Watch, *, lost: bool = False) -> None:
        """A consumer goes. In good order its claims are free at once; lost, each counts as a failure."""
        member = self.members.pop(watch.number, None)
        if member is None:
            return
        member.active = False
        self._redeliver.pop(watch.number, None)
        for delivery in list(member.deliveries.values()):
            self.deliveries.end_for_consumer(delivery, lost=lost)
        pool = member.pool
        self._close_empty(self.dispatcher.detach_consumer(member))
        self.dispatcher.remove_consumer(member)
        self.dead_letter_destinations.pop(watch.number, None)
        self.notify_consumers(pool)

    def _close_empty(self, pool: MatchQueue | None) -> None:
        if pool is not None:
            self.matcher.close_queue(pool)
            self._pools.pop(self._pool_keys.pop(pool.feed.number), None)

    def change_filter(self, watch: Watch) -> None:
        """Another filter: the watch draws from another pool; what it holds stays its own."""
        member = self.members[watch.number]
        fresh = self._pool_for(watch, member)
        if fresh is member.pool:
            return
        for delivery in member.deliveries.values():
            place = self.dispatcher.entry_in(fresh, delivery.queued_element.element)
            if place is not None:
                delivery.entry, delivery.is_withdrawn = place, False
        wanted = [delivery for delivery in member.deliveries.values() if not delivery.is_withdrawn]
        closed = self.dispatcher.detach_consumer(member)
        self.dispatcher.add_consumer(member, fresh)
        self._close_empty(closed)
        for delivery in wanted:
            if delivery.is_withdrawn:
                self.report_withdrawal(delivery)

    def reattach_consumer(self, watch: Watch) -> None:
        """A reliable consumer is attached again: what it held and did not end is handed out once more."""
        member = self.members.get(watch.number)
        if member is not None:
            pending = [d for d in member.deliveries.values() if d.state is DeliveryState.PENDING]
            self._redeliver[watch.number] = [d for d in pending if not d.is_withdrawn]
            for delivery in pending:
                if delivery.is_withdrawn:  # nothing is to be done for it any more, and its holder begins anew
                    self.deliveries.end_for_consumer(delivery, lost=False)
            self.update_consumer(watch)

    # --- commits ----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return bool(self.matcher.pools) or bool(self.dispatcher.attempts)

    def committed(self, commit: Commit) -> None:
        """What a commit means for those who wait."""
        if self.dispatcher.attempts:
            self._forget_deleted(commit)
        self.matcher.committed(commit)

    def _forget_deleted(self, commit: Commit) -> None:
        """Attempts of elements that are gone, also while nobody consumes them."""
        for before, after in commit.changes:
            if after is None and before is not None and before.id in self.dispatcher.attempts:
                for group in list(self.dispatcher.attempts[before.id]):
                    self.deliveries.clear_attempts(before.id, group)

    def report_withdrawal(self, delivery: Delivery) -> None:
        """Its holder is told; one who has acknowledged it already needs not be."""
        if delivery.state is DeliveryState.PENDING:
            delivery.consumer.watch.details.add_error(
                Withdrawal(delivery.id, delivery.queued_element.element)
            )
            self._wake_watch(delivery.consumer.watch)

    def reloaded(self, meta: dict[str, str]) -> None:
        """The last durable state was read again: attempts and letters are what the store says."""
        self.dispatcher.attempts.clear()
        self.dead_letters.letters.clear()
        self.deliveries.restore(meta)
        self.dead_letters.restore(meta)
        self.refresh_all()

    def refresh_all(self, shapes: Iterable[WatchShape] | None = None) -> None:
        """The ontology grew, the state was read anew, or Layer 0 changed: look again."""
        self.matcher.refresh_all(shapes)

    def update_queue_key(self, pool: MatchQueue) -> None:
        """Its shape was compiled anew: its members, and who joins them, have the new one."""
        number = pool.feed.number
        del self._pools[self._pool_keys[number]]
        for member in pool.members:
            member.watch.shape = pool.feed.shape
        key = self._pool_keys[number] = self._key(pool.members[0].watch, pool.group)
        self._pools[key] = pool

    # --- handing out ------------------------------------------------------------------------------------------

    def deliver(self, watch: Watch, limit: int | None) -> list[BufferedEvent]:
        """First what waits in the buffer (`initial`), then claims, each with its delivery id."""
        ready = watch.take_events(self._database.log_writer.durable_sequence, limit)
        member = self.members.get(watch.number)
        if member is None or watch.status is not WatchStatus.ACTIVE or self._database.read_only is not None:
            return ready  # read-only: nothing could be acknowledged
        self.deliveries.expire_due()
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
            member,
            None if left is None else left - len(again),
            durable=self._database.log_writer.durable_sequence,
            now=self.now,
            lease=lease,
        )
        self.deliveries.schedule_expiry()
        if again or handed:
            watch.last_event_ms = timestamp_to_ms(self._database.clock.now())
        ready.extend([self._entry(watch, delivery) for delivery in (*again, *handed)])
        return ready

    def unacknowledged_count(self, watch: Watch) -> int:
        """How many deliveries its reader has; those of an attached watch that are to be told again do not count."""
        member = self.members.get(watch.number)
        return (
            len(member.deliveries) - len(self._redeliver.get(watch.number, ())) if member is not None else 0
        )

    def _entry(self, watch: Watch, delivery: Delivery) -> BufferedEvent:
        watch.position += 1
        watch.delivered_count += 1
        delta = Delta("consumed", delivery.row)
        delta.delivery = (delivery.id, delivery.attempt)
        return BufferedEvent(watch.position, delivery.entry.sequence, delivery.entry.tick, delta)

    def ready_count(self, watch: Watch) -> int:
        """How many wait that the watch could be handed."""
        member = self.members.get(watch.number)
        if member is None or member.pool is None:
            return 0
        member.pool.admit_durable(self._database.log_writer.durable_sequence)
        return len(member.pool)

    def notify_consumers(self, pool: MatchQueue | None) -> None:
        """Something may be there for the pool's members, now or when what is under way is durable."""
        if pool is not None:
            self.notify_when_durable([pool], self._database.state.sequence)

    def notify_after(self, deliveries: Iterable[Delivery], sequence: int) -> None:
        """Deliveries ended: there is room for their members and groups, and perhaps an item for others."""
        pools: dict[int, MatchQueue] = {}
        for delivery in deliveries:
            for pool in delivery.consumer.group.pools:
                pools[id(pool)] = pool
            for place in delivery.queued_element.entries:
                pools[id(place.pool)] = place.pool
        if pools:
            self.notify_when_durable(pools.values(), sequence)

    def notify_when_durable(self, pools: Iterable[MatchQueue], sequence: int) -> None:
        waking = [
            member.watch.details.wakeup
            for pool in pools
            for member in pool.members
            if member.watch.has_details and member.watch.details.wakeup is not None
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
        """Raise AssertionError unless pools are what a fresh evaluation says and the desk agrees; for tests."""
        self.matcher.validate()
