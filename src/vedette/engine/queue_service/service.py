"""Consume watches of one database: who consumes, what they are handed, and when they are woken.

A consume watch is a member of a pool (`supply.py`), alone or with others of its group, and draws from it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from vedette.engine.queue_service.dead_letters import DeadLetters
from vedette.engine.queue_service.matcher import Supply
from vedette.engine.queue_service.settlement import Deliveries
from vedette.engine.state.graph_state import Commit
from vedette.errors import VedetteError
from vedette.queue.dispatcher import Desk
from vedette.queue.entry import Delivery, DeliveryState
from vedette.queue.match_queue import Group, Member, Pool
from vedette.queue.notice import Withdrawal
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import Entry
from vedette.watch.delta import Delta, frozen
from vedette.watch.evaluation.effects import WatchHub
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watch_service.service import Watching

__all__ = ["Consuming"]


class Consuming:
    """The consume side of a database. Called with the turn held."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._database = watching.database
        self._issued = 0
        self.desk = Desk(self._new_delivery, self._seconds_until)
        self.desk.key_freed = lambda group: self.wake_when_durable(group.pools, self._database.state.sequence)
        self.deliveries = Deliveries(self)
        self.letters = DeadLetters(self)
        self.supply = Supply(self)
        self.members: dict[int, Member] = {}
        """By the number of the user's watch."""
        self._pools: dict[Hashable, Pool] = {}
        self._pool_keys: dict[int, Hashable] = {}
        self.destinations: dict[int, str] = {}
        """Where dead letters go, by the number of the user's watch."""
        self._again: dict[int, list[Delivery]] = {}
        """Deliveries to hand out once more, under the same ids: their consumer came back."""

    @property
    def watching(self) -> Watching:
        return self._watching

    @property
    def hub(self) -> WatchHub:
        """The engine's own watches, one for each pool."""
        return self.supply.hub

    def _new_delivery(self) -> str:
        self._issued += 1
        return f"d{self._database.boot:x}_{self._issued:x}"

    def _seconds_until(self, moment_ms: int) -> float:
        return (moment_ms - timestamp_to_ms(self._database.clock.now())) / 1000

    @property
    def now(self) -> float:
        return self._database.clock.monotonic()

    # --- consumers come and go --------------------------------------------------------------------------------

    def enter(self, watch: Watch) -> None:
        """A new consume watch: an empty `initial`, then whatever it may claim."""
        options = watch.options
        key: Hashable = ("group", options.group) if options.group is not None else ("watch", watch.number)
        group = self.desk.group(key, options.group)
        member = self.members[watch.number] = Member(
            watch.number, group, bound=options.buffer, group_bound=options.max_in_flight, watch=watch
        )
        try:
            pool = self._pool_for(watch, member)
        except VedetteError:
            del self.members[watch.number]
            self.desk.forget_empty(group)
            raise
        self.desk.join(member, pool)
        self._watching.hub.watches[watch.number] = watch
        if options.initial.kind == "full" and watch.position == 0:
            delta = Delta("initial", None)
            delta.matches = []
            state = self._database.state
            watch.push(delta, state.tick, state.sequence, watch.created_ms)
        self.changed(watch)

    def _pool_for(self, watch: Watch, member: Member) -> Pool:
        key = self._key(watch, member.group)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = self.supply.open(watch, member)
            self._pool_keys[pool.source.number] = key
        return pool

    def _key(self, watch: Watch, group: Group) -> Hashable:
        """Equal watches of a named group draw from one pool, unless they want only what comes after them."""
        options = watch.options
        own = watch.number if options.initial.kind == "none" or group.name is None else None
        return (group.name, watch.shape, frozen(list(watch.constants)), watch.actor, options.deliver_on, own)

    def changed(self, watch: Watch) -> None:
        """Its status, its options or its owner are others now."""
        member = self.members.get(watch.number)
        if member is None:
            return
        member.active = watch.status is WatchStatus.ACTIVE and watch.owner is not None
        member.bound = watch.options.buffer
        self.wake(member.pool)

    def leave(self, watch: Watch, *, lost: bool = False) -> None:
        """A consumer goes. In good order its claims are free at once; lost, each counts as a failure."""
        member = self.members.pop(watch.number, None)
        if member is None:
            return
        member.active = False
        self._again.pop(watch.number, None)
        for delivery in list(member.held.values()):
            self.deliveries.abandon(delivery, lost=lost)
        pool = member.pool
        self._close_empty(self.desk.leave(member))
        self.desk.part(member)
        self.destinations.pop(watch.number, None)
        self.wake(pool)

    def _close_empty(self, pool: Pool | None) -> None:
        if pool is not None:
            self.supply.close(pool)
            self._pools.pop(self._pool_keys.pop(pool.source.number), None)

    def refilter(self, watch: Watch) -> None:
        """Another filter: the watch draws from another pool; what it holds stays its own."""
        member = self.members[watch.number]
        fresh = self._pool_for(watch, member)
        if fresh is member.pool:
            return
        for delivery in member.held.values():
            place = self.desk.place_in(fresh, delivery.item.element)
            if place is not None:
                delivery.place, delivery.withdrawn = place, False
        wanted = [delivery for delivery in member.held.values() if not delivery.withdrawn]
        closed = self.desk.leave(member)
        self.desk.join(member, fresh)
        self._close_empty(closed)
        for delivery in wanted:
            if delivery.withdrawn:
                self.tell_withdrawn(delivery)

    def returned(self, watch: Watch) -> None:
        """A reliable consumer is attached again: what it held and did not end is handed out once more."""
        member = self.members.get(watch.number)
        if member is not None:
            pending = [d for d in member.held.values() if d.state is DeliveryState.PENDING]
            self._again[watch.number] = [d for d in pending if not d.withdrawn]
            for delivery in pending:
                if delivery.withdrawn:  # nothing is to be done for it any more, and its holder begins anew
                    self.deliveries.abandon(delivery, lost=False)
            self.changed(watch)

    # --- commits ----------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self.supply.pools) or bool(self.desk.attempts)

    def committed(self, commit: Commit) -> None:
        """What a commit means for those who wait."""
        if self.desk.attempts:
            self._forget_deleted(commit)
        self.supply.committed(commit)

    def _forget_deleted(self, commit: Commit) -> None:
        """Attempts of elements that are gone, also while nobody consumes them."""
        for before, after in commit.changes:
            if after is None and before is not None and before.id in self.desk.attempts:
                for group in list(self.desk.attempts[before.id]):
                    self.deliveries.forget(before.id, group)

    def tell_withdrawn(self, delivery: Delivery) -> None:
        """Its holder is told; one who has acknowledged it already needs not be."""
        if delivery.state is DeliveryState.PENDING:
            delivery.member.watch.details.report(Withdrawal(delivery.id, delivery.item.element))
            self._wake_watch(delivery.member.watch)

    def reloaded(self, meta: dict[str, str]) -> None:
        """The last durable state was read again: attempts and letters are what the store says."""
        self.desk.attempts.clear()
        self.letters.letters.clear()
        self.deliveries.restore(meta)
        self.letters.restore(meta)
        self.refresh_all()

    def refresh_all(self, shapes: Iterable[WatchShape] | None = None) -> None:
        """The ontology grew, the state was read anew, or Layer 0 changed: look again."""
        self.supply.refresh_all(shapes)

    def rekey(self, pool: Pool) -> None:
        """Its shape was compiled anew: its members, and who joins them, have the new one."""
        number = pool.source.number
        del self._pools[self._pool_keys[number]]
        for member in pool.members:
            member.watch.shape = pool.source.shape
        key = self._pool_keys[number] = self._key(pool.members[0].watch, pool.group)
        self._pools[key] = pool

    # --- handing out ------------------------------------------------------------------------------------------

    def take(self, watch: Watch, limit: int | None) -> list[Entry]:
        """First what waits in the buffer (`initial`), then claims, each with its delivery id."""
        ready = watch.take(self._database.gate.durable_tick, limit)
        member = self.members.get(watch.number)
        if member is None or watch.status is not WatchStatus.ACTIVE or self._database.read_only is not None:
            return ready  # read-only: nothing could be acknowledged
        self.deliveries.lapse()
        left = None if limit is None else limit - len(ready)
        again = self._again.pop(watch.number, [])
        again = [d for d in again if d.state is DeliveryState.PENDING and not d.withdrawn]
        if left is not None and len(again) > left:
            self._again[watch.number] = again[left:]
            again = again[:left]
        lease = watch.options.ack_timeout.total_seconds()
        for delivery in again:
            self.desk.extend(delivery, self.now + lease)
        handed = self.desk.hand_out(
            member,
            None if left is None else left - len(again),
            durable=self._database.gate.durable_tick,
            now=self.now,
            lease=lease,
        )
        self.deliveries.arm()
        if again or handed:
            watch.last_event_ms = timestamp_to_ms(self._database.clock.now())
        ready.extend([self._entry(watch, delivery) for delivery in (*again, *handed)])
        return ready

    def in_hand(self, watch: Watch) -> int:
        """How many deliveries its reader has; those of an attached watch that are to be told again do not count."""
        member = self.members.get(watch.number)
        return len(member.held) - len(self._again.get(watch.number, ())) if member is not None else 0

    def _entry(self, watch: Watch, delivery: Delivery) -> Entry:
        watch.position += 1
        watch.delivered += 1
        delta = Delta("consumed", delivery.match)
        delta.delivery = (delivery.id, delivery.attempt)
        return Entry(watch.position, delivery.place.sequence, delivery.place.tick, delta)

    def waiting(self, watch: Watch) -> int:
        """How many wait that the watch could be handed."""
        member = self.members.get(watch.number)
        if member is None or member.pool is None:
            return 0
        member.pool.settle(self._database.gate.durable_tick)
        return len(member.pool)

    def wake(self, pool: Pool | None) -> None:
        """Something may be there for the pool's members, now or when what is under way is durable."""
        if pool is not None:
            self.wake_when_durable([pool], self._database.state.sequence)

    def wake_after(self, deliveries: Iterable[Delivery], sequence: int) -> None:
        """Deliveries ended: there is room for their members and groups, and perhaps an item for others."""
        pools: dict[int, Pool] = {}
        for delivery in deliveries:
            for pool in delivery.member.group.pools:
                pools[id(pool)] = pool
            for place in delivery.item.places:
                pools[id(place.pool)] = place.pool
        if pools:
            self.wake_when_durable(pools.values(), sequence)

    def wake_when_durable(self, pools: Iterable[Pool], sequence: int) -> None:
        waking = [
            member.watch.details.wake
            for pool in pools
            for member in pool.members
            if member.watch.has_details and member.watch.details.wake is not None
        ]
        if waking:
            self._database.gate.notify(sequence, lambda _: [wake() for wake in waking], hurry=False)

    def _wake_watch(self, watch: Watch) -> None:
        if watch.details.wake is not None:
            watch.details.wake()

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError unless pools are what a fresh evaluation says and the desk agrees; for tests."""
        self.supply.validate()
