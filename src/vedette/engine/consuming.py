"""Consume watches of one database: the pools they draw from, and what commits mean for those.

Equal watches of a group share one pool, and in its place one watch of the engine's own, which stands in a hub apart:
it is told what matches, and hands that on to the pool. The user's watches are members of the pool and match nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedette.consume.desk import Desk
from vedette.consume.item import Delivery, DeliveryState, Want
from vedette.consume.notice import Withdrawal
from vedette.consume.pool import Group, Member, Pool
from vedette.consume.rank import rank_of
from vedette.engine.dead_letters import DeadLetters
from vedette.engine.deliveries import Deliveries
from vedette.engine.state import Commit
from vedette.errors import VedetteError
from vedette.language.affected import Difference
from vedette.language.context import Row
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import Entry
from vedette.watch.delta import REMOVED, Delta, frozen
from vedette.watch.evaluation import tell_shape, watches_of
from vedette.watch.hub import WatchHub
from vedette.watch.shape import WatchShape
from vedette.watch.subscription import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watching import Watching

__all__ = ["Consuming"]


class Consuming:
    """The consume side of a database. Called with the turn held."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._database = watching.database
        self.hub = WatchHub()
        """The engine's own watches, one for each pool."""
        self._issued = 0
        self.desk = Desk(self._new_delivery, self._seconds_until)
        self.deliveries = Deliveries(self)
        self.letters = DeadLetters(self)
        self.members: dict[int, Member] = {}
        """By the number of the user's watch."""
        self._pools: dict[Hashable, Pool] = {}
        self._pool_keys: dict[int, Hashable] = {}
        self._by_source: dict[int, Pool] = {}
        self.destinations: dict[int, str] = {}
        """Where dead letters go, by the number of the user's watch."""
        self._ticking: dict[int, Pool] = {}
        """Pools that hold what comes until logical time has moved on."""
        self._choosy: dict[int, Pool] = {}
        """Pools that do not want what was there before them (initial: none)."""
        self._again: dict[int, list[Delivery]] = {}
        """Deliveries to hand out once more, under the same ids: their consumer came back."""

    @property
    def watching(self) -> Watching:
        return self._watching

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
            pool = self._pools[key] = self._open(watch, member)
            self._pool_keys[pool.source.number] = key
        return pool

    def _key(self, watch: Watch, group: Group) -> Hashable:
        """Equal watches of a named group draw from one pool, unless they want only what comes after them."""
        options = watch.options
        own = watch.number if options.initial.kind == "none" or group.name is None else None
        return (group.name, watch.shape, frozen(list(watch.constants)), watch.actor, options.deliver_on, own)

    def _open(self, watch: Watch, member: Member) -> Pool:
        """A pool with everything that matches now; with initial: none only with what comes."""
        options = replace(watch.options, visibility="committed")
        source = Watch(
            self.hub.next_number(),
            watch.shape,
            watch.constants,
            options,
            owner=None,
            actor=watch.actor,
            created_ms=watch.created_ms,
        )
        pool = Pool(member.group, serialized=options.serialize_by is not None, source=source)
        if options.deliver_on == "tick":
            pool.hold_for_ticks()
            self._ticking[source.number] = pool
        self._by_source[source.number] = pool
        if options.initial.kind == "none":
            former = member.pool.unwanted if member.pool is not None else None
            pool.unwanted = former.copy() if former is not None else set(self._identities(source))
            self._choosy[source.number] = pool
        try:
            self._refresh(pool)
        except VedetteError:
            member.group.pools.remove(pool)
            del self._by_source[source.number]
            self._ticking.pop(source.number, None)
            self._choosy.pop(source.number, None)
            raise
        self.hub.add(source)
        pool.tick()  # what was there before needs no tick
        return pool

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
            self.hub.remove(pool.source)
            self.hub.forget(pool.source)
            del self._by_source[pool.source.number]
            self._ticking.pop(pool.source.number, None)
            self._choosy.pop(pool.source.number, None)
            self._pools.pop(self._pool_keys.pop(pool.source.number), None)

    def refilter(self, watch: Watch) -> None:
        """Another filter: the watch draws from another pool; what it holds stays its own."""
        member = self.members[watch.number]
        fresh = self._pool_for(watch, member)
        if fresh is member.pool:
            return
        for delivery in member.held.values():
            place = fresh.places.get(delivery.item.element)
            if place is not None:
                delivery.place, delivery.withdrawn = place, False
        wanted = [delivery for delivery in member.held.values() if not delivery.withdrawn]
        closed = self.desk.leave(member)
        self.desk.join(member, fresh)
        self._close_empty(closed)
        for delivery in wanted:
            if delivery.withdrawn:
                self._tell_withdrawn(delivery)

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

    def committed(self, commit: Commit) -> None:
        """What a commit means for the pools; their members are woken when it is durable."""
        if self.desk.attempts:
            self._forget_deleted(commit)
        shapes = self.hub.concerned(commit.changes)
        if shapes:
            left = self._take_out_deleted(commit.changes)
            self._tell(commit, [s for s in shapes if left or not _stands_alone(s)], left)
        if commit.next_tick > commit.tick and self._ticking:
            for pool in self._ticking.values():
                pool.tick()
            self._wake_when_durable(self._ticking.values(), commit.sequence)

    def _take_out_deleted(self, changes: Sequence[Difference]) -> Sequence[Difference]:
        """Elements that are gone match no pattern of one element, whatever it says; returns the other changes."""
        deleted = [before.id for before, after in changes if after is None and before is not None]
        if not deleted:
            return changes
        for id in deleted:
            item = self.desk.items.get(id)
            for place in [*item.places] if item is not None else ():
                if _stands_alone(place.pool.source.shape):
                    self._withdraw(place.pool, id, (id,))
        for pool in self._choosy.values():
            assert pool.unwanted is not None
            pool.unwanted.difference_update([(id,) for id in deleted])
        return [change for change in changes if change[1] is not None]

    def _tell(self, commit: Commit, shapes: Sequence[WatchShape], left: Sequence[Difference]) -> None:
        """`left`: the changes that matter to patterns of one element."""
        scene = self._watching.scene(self._database.state.graph, commit.changes, commit.tick)
        touched: dict[int, Pool] = {}
        broken: dict[int, VedetteError] = {}
        gone: list[tuple[Pool, Delta]] = []
        now = self.now

        def push(source: Watch, delta: Delta, row: Row | None) -> None:  # noqa: ARG001 - the hub's protocol
            pool = self._by_source[source.number]
            touched[source.number] = pool
            if delta.type == REMOVED:
                gone.append((pool, delta))
            else:
                self._offer(pool, delta, commit, now)

        def fail(source: Watch, error: VedetteError) -> None:
            broken.setdefault(source.number, error)

        for shape in shapes:
            if shape.strategy == "rows":
                tell_shape(shape, left if _stands_alone(shape) else commit.changes, scene, push, fail)
                continue
            for source in watches_of(shape):
                touched[source.number] = self._by_source[source.number]
                try:
                    self._refresh(self._by_source[source.number], commit)
                except VedetteError as error:
                    fail(source, error)
        for pool, delta in gone:  # last: an element that matches otherwise now never stopped matching
            self._take_back(pool, delta)
        for number, why in broken.items():
            self._fail(self._by_source[number], why)
        for pool in touched.values():  # little by little: whoever takes next shall not pay for all who came
            pool.settle(self._database.gate.durable_tick)
        self._wake_when_durable(touched.values(), commit.sequence)

    @property
    def busy(self) -> bool:
        return bool(self._by_source) or bool(self.desk.attempts)

    def _offer(self, pool: Pool, delta: Delta, commit: Commit, now: float) -> None:
        """A match appeared or looks different; initial: none has no eyes for those that were there before."""
        identity = delta.identity
        if pool.unwanted is None or identity not in pool.unwanted:
            want = self._want(pool, identity, delta.match or {}, delta.order)
            element = identity[pool.source.shape.leading]
            self.desk.offer(pool, element, want, sequence=commit.sequence, tick=commit.tick, now=now)

    def _take_back(self, pool: Pool, delta: Delta) -> None:
        """A match is gone."""
        if pool.unwanted is not None:
            pool.unwanted.discard(delta.identity)
        self._withdraw(pool, delta.identity[pool.source.shape.leading], delta.identity)

    def _want(self, pool: Pool, identity: Any, match: Any, order: tuple[Any, ...]) -> Want:
        directions = [descending for _, descending in pool.source.shape.order]
        if not pool.serialized:
            return Want(identity, match, rank_of(order, directions), None)
        return Want(identity, match, rank_of(order[:-1], directions[:-1]), frozen(order[-1]))

    def _withdraw(self, pool: Pool, element: str, identity: Any) -> None:
        told = self.desk.withdraw(pool, element, identity)
        if told is not None:
            self._tell_withdrawn(told)
        if self.desk.outlived(element, pool.group.name):
            self.deliveries.forget(element, pool.group.name)

    def _tell_withdrawn(self, delivery: Delivery) -> None:
        """Its holder is told; one who has acknowledged it already needs not be."""
        if delivery.state is DeliveryState.PENDING:
            delivery.member.watch.details.report(Withdrawal(delivery.id, delivery.item.element))
            self._wake_watch(delivery.member.watch)

    def _forget_deleted(self, commit: Commit) -> None:
        """Attempts of elements that are gone, also while nobody consumes them."""
        for before, after in commit.changes:
            if after is None and before is not None and before.id in self.desk.attempts:
                for group in list(self.desk.attempts[before.id]):
                    self.deliveries.forget(before.id, group)

    def _evaluated(self, source: Watch) -> Iterable[tuple[Any, Any, tuple[Any, ...]]]:
        """Everything that matches now, the oldest elements first: identity, match, order."""
        shape = source.shape
        context = self._watching.own_context(source, self._database.state.graph)
        rows = {shape.identity(row): row for row in shape.query.run(context)}
        for identity in sorted(rows, key=lambda ids: [_age(id) for id in (ids[shape.leading], *ids)]):
            row = rows[identity]
            yield identity, shape.projected(row), shape.order_of(row)

    def _identities(self, source: Watch) -> Iterable[Any]:
        return (identity for identity, _, _ in self._evaluated(source))

    def _refresh(self, pool: Pool, commit: Commit | None = None) -> None:
        """Make the pool what a fresh evaluation says."""
        state, shape, now = self._database.state, pool.source.shape, self.now
        sequence = commit.sequence if commit is not None else state.sequence
        tick = commit.tick if commit is not None else state.tick
        found = {identity: (match, order) for identity, match, order in self._evaluated(pool.source)}
        if pool.unwanted is not None:
            pool.unwanted.intersection_update(found)
            found = {identity: each for identity, each in found.items() if identity not in pool.unwanted}
        known = {want.identity: want for place in pool.places.values() for want in place.wants()}
        for identity, (match, order) in found.items():
            want = self._want(pool, identity, match, order)
            if known.get(identity) != want:
                self.desk.offer(pool, identity[shape.leading], want, sequence=sequence, tick=tick, now=now)
        for identity in known.keys() - found.keys():
            self._withdraw(pool, identity[shape.leading], identity)

    def reloaded(self, meta: dict[str, str]) -> None:
        """The last durable state was read again: attempts and letters are what the store says."""
        self.desk.attempts.clear()
        self.letters.letters.clear()
        self.deliveries.restore(meta)
        self.letters.restore(meta)
        self.refresh_all()

    def refresh_all(self, shapes: Iterable[WatchShape] | None = None) -> None:
        """The ontology grew, the state was read anew, or Layer 0 changed: look again."""
        only = None if shapes is None else {id(shape) for shape in shapes}
        for pool in list(self._by_source.values()):
            if only is not None and id(pool.source.shape) not in only:
                continue
            if shapes is None:
                self._rekey(pool)
            try:
                self._refresh(pool)
            except VedetteError as error:
                self._fail(pool, error)
            self._wake_when_durable([pool], self._database.state.sequence)

    def _rekey(self, pool: Pool) -> None:
        """Its shape was compiled anew: its members, and who joins them, have the new one."""
        number = pool.source.number
        del self._pools[self._pool_keys[number]]
        for member in pool.members:
            member.watch.shape = pool.source.shape
        key = self._pool_keys[number] = self._key(pool.members[0].watch, pool.group)
        self._pools[key] = pool

    def _fail(self, pool: Pool, error: VedetteError) -> None:
        for member in list(pool.members):
            self._watching.fail(member.watch, error)

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

    def _entry(self, watch: Watch, delivery: Delivery) -> Entry:
        watch.position += 1
        watch.delivered += 1
        delta = Delta("consumed", delivery.want.match)
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
            self._wake_when_durable([pool], self._database.state.sequence)

    def wake_after(self, deliveries: Iterable[Delivery], sequence: int) -> None:
        """Deliveries ended: there is room for their members and groups, and perhaps an item for others."""
        pools: dict[int, Pool] = {}
        for delivery in deliveries:
            for pool in delivery.member.group.pools:
                pools[id(pool)] = pool
            for place in delivery.item.places:
                pools[id(place.pool)] = place.pool
        if pools:
            self._wake_when_durable(pools.values(), sequence)

    def _wake_when_durable(self, pools: Iterable[Pool], sequence: int) -> None:
        waking = [
            member.watch.details.wake
            for pool in pools
            for member in pool.members
            if member.watch.has_details and member.watch.details.wake is not None
        ]
        if waking:
            self._database.gate.notify(sequence, lambda _: [wake() for wake in waking])

    def _wake_watch(self, watch: Watch) -> None:
        if watch.details.wake is not None:
            watch.details.wake()

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError unless pools are what a fresh evaluation says and the desk agrees; for tests."""
        self.desk.validate(self._by_source.values())
        for pool in self._by_source.values():
            shape = pool.source.shape
            if shape.time_dependent:  # it waits for a commit or a tick
                continue
            fresh = set(self._identities(pool.source)) - (pool.unwanted or set())
            assert {identity for place in pool.places.values() for identity in place.identities()} == fresh
            assert {identity[shape.leading] for identity in fresh} == set(pool.places)


def _stands_alone(shape: WatchShape) -> bool:
    """Whether its pattern is one element, and a change of that is all that can concern a match."""
    return shape.single is not None and shape.strategy == "rows"


def _age(id: str) -> tuple[int, int, str]:
    """Elements sort by when they were made: their ids hold the count of openings and a running number."""
    head, _, tail = id[1:].partition("_")
    try:
        return int(head, 16), int(tail, 16), ""
    except ValueError:
        return 0, 0, id
