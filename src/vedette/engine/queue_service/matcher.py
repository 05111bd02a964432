"""What there is to be handed out: the pools of one database, and what commits mean for them.

Equal watches of a group share one pool, and in its place one watch of the engine's own, which stands in a hub apart:
it is told what matches, and hands that on to the pool. The user's watches are members of the pool and match nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedette.engine.state.graph_state import Commit
from vedette.errors import VedetteError
from vedette.language.compile.affected_matches import Difference
from vedette.language.compile.execution_context import Context, Row
from vedette.queue.entry import Delivery, Want
from vedette.queue.match_queue import Member, Pool
from vedette.watch.delta import REMOVED, Delta, frozen
from vedette.watch.evaluation.effects import WatchHub
from vedette.watch.evaluation.rows import tell_shape, watches_of
from vedette.watch.ordering import Rank, rank_of
from vedette.watch.shapes.conditions import tells_time
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.queue_service.service import Consuming

__all__ = ["Supply"]

_CROWD = 256
"""So many who come at once are let into line by whoever brought them, not by whoever takes next."""


class Supply:
    """Pools and their matches. Called with the turn held."""

    def __init__(self, consuming: Consuming) -> None:
        self._consuming = consuming
        self._watching = consuming.watching
        self._database = consuming.watching.database
        self.hub = WatchHub()
        """The engine's own watches, one for each pool."""
        self.pools: dict[int, Pool] = {}
        """By the number of the engine's own watch."""
        self._ticking: dict[int, Pool] = {}
        """Pools that hold what comes until logical time has moved on."""
        self._choosy: dict[int, Pool] = {}
        """Pools that do not want what was there before them (initial: none)."""
        self.crowded: list[Pool] = []
        """Pools to which many have come that were not durable then."""

    # --- pools ------------------------------------------------------------------------------------------------

    def open(self, watch: Watch, member: Member) -> Pool:
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
        if _can_look_late(pool):
            pool.late = _LateLook(self, pool) if watch.shape.order else _LateUnranked(self, pool)
        if options.deliver_on == "tick" and not self._database.state.ticks_by_commit:
            pool.hold_for_ticks()
            self._ticking[source.number] = pool
        self.pools[source.number] = pool
        if options.initial.kind == "none":
            former = member.pool.unwanted if member.pool is not None else None
            pool.unwanted = former.copy() if former is not None else set(self._identities(source))
            self._choosy[source.number] = pool
        try:
            self._refresh(pool)
        except VedetteError:
            member.group.pools.remove(pool)
            self._forget(pool)
            raise
        self.hub.add(source)
        pool.tick()  # what was there before needs no tick
        return pool

    def close(self, pool: Pool) -> None:
        """Nobody draws from it any more."""
        self.hub.remove(pool.source)
        self.hub.forget(pool.source)
        self._forget(pool)

    def _forget(self, pool: Pool) -> None:
        number = pool.source.number
        del self.pools[number]
        self._ticking.pop(number, None)
        self._choosy.pop(number, None)

    # --- commits ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        """What a commit means for the pools; their members are woken when it is durable."""
        shapes = self.hub.concerned(commit.changes)
        if shapes:
            left = self._take_out_deleted(commit.changes)
            concerned = [shape for shape in shapes if left or not _stands_alone(shape)]
            if concerned:
                self._tell(commit, concerned, left)
        if commit.next_tick > commit.tick and self._ticking:
            for pool in self._ticking.values():
                pool.tick()
            self._consuming.wake_when_durable(self._ticking.values(), commit.sequence)

    def _take_out_deleted(self, changes: Sequence[Difference]) -> Sequence[Difference]:
        """Elements that are gone match no pattern of one element, whatever it says; returns the other changes."""
        deleted = [before.id for before, after in changes if after is None and before is not None]
        if not deleted:
            return changes
        desk = self._consuming.desk
        for id in deleted:
            for place in desk.places_of(id):
                if _stands_alone(place.pool.source.shape):
                    self._withdraw(place.pool, id, (id,))
        for pool in self._choosy.values():
            assert pool.unwanted is not None
            pool.unwanted.difference_update([(id,) for id in deleted])
        if len(deleted) == len(changes):
            return ()
        return [change for change in changes if change[1] is not None]

    def _tell(self, commit: Commit, shapes: Sequence[WatchShape], left: Sequence[Difference]) -> None:
        """`left`: the changes that matter to patterns of one element."""
        touched: dict[int, Pool] = {}
        others: Sequence[WatchShape] = shapes
        if not any(before for before, _ in commit.changes):
            for shape in shapes:
                if _speaks_for_all(shape):
                    self._tell_fresh(shape, commit, touched)
            others = [shape for shape in shapes if not _speaks_for_all(shape)]
        if others:
            self._tell_others(commit, others, left, touched)
        durable = self._database.gate.durable_tick
        for pool in touched.values():  # little by little: whoever takes next shall not pay for all who came
            pool.settle(durable)
            if pool.arriving > _CROWD and pool not in self.crowded:
                self.crowded.append(pool)
        self._consuming.wake_when_durable(touched.values(), commit.sequence)

    def let_in(self) -> None:
        """Called without the turn by who has waited for a commit: many came with it, and they stand in line now.

        Little by little, so that others have their turns in between.
        """
        while self.crowded:
            with self._database.turn:
                durable = self._database.gate.durable_tick
                for pool in self.crowded:
                    pool.settle(durable, _CROWD)
                self.crowded = [pool for pool in self.crowded if pool.is_due(durable)]

    def _tell_fresh(self, shape: WatchShape, commit: Commit, touched: dict[int, Pool]) -> None:
        """New elements, and a pattern of one element that asks no watch for itself: the commonest, and the quickest."""
        assert shape.single is not None
        desk, sequence, tick = self._consuming.desk, commit.sequence, commit.tick
        context = Context(self._database.state.graph, self._database.clock.now, tick=tick)
        now = self._consuming.now if desk.attempts else 0.0
        types, slot = shape.single.types, shape.single.slot
        for _, element in commit.changes:
            if element is None or element.type not in types:
                continue
            row: Row = [None] * shape.size
            row[0], row[slot] = context, element
            if shape.closed_closures and not all(closure(row) for closure in shape.closed_closures):
                continue
            for source in shape.candidates(row):
                pool = touched[source.number] = self.pools[source.number]
                want = None if pool.late is not None else self._want_of_row(pool, (element.id,), row)
                desk.offer(pool, element.id, want, sequence=sequence, tick=tick, now=now)

    def _tell_others(
        self,
        commit: Commit,
        shapes: Sequence[WatchShape],
        left: Sequence[Difference],
        touched: dict[int, Pool],
    ) -> None:
        scene = self._watching.scene(self._database.state.graph, commit.changes, commit.tick)
        broken: dict[int, VedetteError] = {}
        gone: list[tuple[Pool, Delta]] = []
        now = self._consuming.now

        def push(source: Watch, delta: Delta, row: Row | None) -> None:  # noqa: ARG001 - the hub's protocol
            pool = touched[source.number] = self.pools[source.number]
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
                pool = touched[source.number] = self.pools[source.number]
                try:
                    self._refresh(pool, commit)
                except VedetteError as error:
                    fail(source, error)
        for pool, delta in gone:  # last: an element that matches otherwise now never stopped matching
            self._take_back(pool, delta)
        for number, why in broken.items():
            self._fail(self.pools[number], why)

    def _offer(self, pool: Pool, delta: Delta, commit: Commit, now: float) -> None:
        """A match appeared or looks different; initial: none has no eyes for those that were there before."""
        identity = delta.identity
        if pool.unwanted is None or identity not in pool.unwanted:
            late = pool.late is not None
            want = None if late else self._want(pool, identity, delta.match or {}, delta.order)
            element = identity[pool.source.shape.leading]
            self._consuming.desk.offer(
                pool, element, want, sequence=commit.sequence, tick=commit.tick, now=now
            )

    def _take_back(self, pool: Pool, delta: Delta) -> None:
        """A match is gone."""
        if pool.unwanted is not None:
            pool.unwanted.discard(delta.identity)
        self._withdraw(pool, delta.identity[pool.source.shape.leading], delta.identity)

    def _withdraw(self, pool: Pool, element: str, identity: Any) -> None:
        desk = self._consuming.desk
        told: Delivery | None = desk.withdraw(pool, element, identity)
        if told is not None:
            self._consuming.tell_withdrawn(told)
        if desk.attempts and desk.outlived(element, pool.group.name):
            self._consuming.deliveries.forget(element, pool.group.name)

    def _fail(self, pool: Pool, error: VedetteError) -> None:
        for member in list(pool.members):
            self._watching.fail(member.watch, error)

    # --- matches ----------------------------------------------------------------------------------------------

    def want_of(self, pool: Pool, element: str) -> Want:
        """The one match of an element, as it is now."""
        return self._want_of_row(pool, (element,), self._row(pool.source.shape, element))

    def rank_of(self, pool: Pool, element: str) -> Rank:
        """Where the one match of an element stands in line."""
        shape = pool.source.shape
        return rank_of(shape.order_of(self._row(shape, element)), shape.directions)

    def matches_of(self, shape: WatchShape, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        """What each element's one match looks like now."""
        return [shape.projected(row) for row in self._rows(shape, elements)]

    def _row(self, shape: WatchShape, element: str) -> Row:
        return self._rows(shape, (element,))[0]

    def _rows(self, shape: WatchShape, elements: Sequence[str]) -> list[Row]:
        state, single = self._database.state, shape.single
        assert single is not None
        context = Context(state.graph, self._database.clock.now, tick=state.tick)
        rows: list[Row] = []
        for element in state.graph.fetch(elements):
            row: Row = [None] * shape.size
            row[0], row[single.slot] = context, element
            rows.append(row)
        return rows

    def _want_of_row(self, pool: Pool, identity: Any, row: Row) -> Want:
        shape = pool.source.shape
        return self._want(pool, identity, shape.projected(row), shape.order_of(row))

    def _want(self, pool: Pool, identity: Any, match: Any, order: tuple[Any, ...]) -> Want:
        directions = pool.source.shape.directions
        if not pool.serialized:
            return Want(identity, match, rank_of(order, directions), None)
        return Want(identity, match, rank_of(order[:-1], directions[:-1]), frozen(order[-1]))

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
        """Make the pool what a fresh evaluation says. What is looked at late has no old looks to compare with."""
        state, shape, now = self._database.state, pool.source.shape, self._consuming.now
        sequence = commit.sequence if commit is not None else state.sequence
        tick = commit.tick if commit is not None else state.tick
        found = {identity: (match, order) for identity, match, order in self._evaluated(pool.source)}
        if pool.unwanted is not None:
            pool.unwanted.intersection_update(found)
            found = {identity: each for identity, each in found.items() if identity not in pool.unwanted}
        late, desk = pool.late is not None, self._consuming.desk
        known = {identity: place for place in pool.places for identity in place.identities()}
        looks = {} if late else {w.identity: w for place in pool.places for w in place.wants()}
        for identity, (match, order) in found.items():
            if late and identity in known:
                desk.rank_anew(known[identity], sequence)
                continue
            want = None if late else self._want(pool, identity, match, order)
            if late or looks.get(identity) != want:
                desk.offer(pool, identity[shape.leading], want, sequence=sequence, tick=tick, now=now)
        for identity in known.keys() - found.keys():
            self._withdraw(pool, identity[shape.leading], identity)

    def refresh_all(self, shapes: Iterable[WatchShape] | None = None) -> None:
        """The ontology grew, the state was read anew, or Layer 0 changed: look again."""
        only = None if shapes is None else {id(shape) for shape in shapes}
        for pool in list(self.pools.values()):
            if only is not None and id(pool.source.shape) not in only:
                continue
            if shapes is None:
                self._consuming.rekey(pool)
                if pool.late is not None and not _can_look_late(pool):
                    pool.keep_wants()
            try:
                self._refresh(pool)
            except VedetteError as error:
                self._fail(pool, error)
            self._consuming.wake_when_durable([pool], self._database.state.sequence)

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError unless pools are what a fresh evaluation says and the desk agrees; for tests."""
        self._consuming.desk.validate(self.pools.values())
        for pool in self.pools.values():
            shape = pool.source.shape
            if shape.time_dependent:  # it waits for a commit or a tick
                continue
            fresh = set(self._identities(pool.source)) - (pool.unwanted or set())
            assert {identity for place in pool.places for identity in place.identities()} == fresh
            assert {identity[shape.leading] for identity in fresh} == {place.element for place in pool.places}


class _LateLook:
    """A million items may wait: their matches are worked out as they are handed out, from the elements as they are.

    An element that changes leaves the line until that is durable, and is ranked anew; so what is looked at late is
    what would have been kept.
    """

    __slots__ = ("_pool", "_supply")

    def __init__(self, supply: Supply, pool: Pool) -> None:
        self._supply, self._pool = supply, pool

    def rank(self, element: str) -> Rank:
        return self._supply.rank_of(self._pool, element)

    def want(self, element: str) -> Want:
        return self._supply.want_of(self._pool, element)

    def matches(self, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        return self._supply.matches_of(self._pool.source.shape, elements)


class _LateUnranked(_LateLook):
    """The same where whoever came first is first."""

    def rank(self, element: str) -> Rank:  # noqa: ARG002 - nobody ranks before another
        return ()


def _can_look_late(pool: Pool) -> bool:
    """Whether all of a match follows from its one element, for everybody alike, and whenever it is looked at."""
    shape = pool.source.shape
    timeless = not any(tells_time(condition) for condition, _ in shape.resolved.order)
    return _speaks_for_all(shape) and not pool.serialized and timeless


def _stands_alone(shape: WatchShape) -> bool:
    """Whether its pattern is one element, and a change of that is all that can concern a match."""
    return shape.single is not None and shape.strategy == "rows"


def _speaks_for_all(shape: WatchShape) -> bool:
    """Whether, besides, no watch of it has conditions or eyes of its own."""
    return shape.single is not None and not shape.private and shape.strategy == "rows"


def _age(id: str) -> tuple[int, int, str]:
    """Elements sort by when they were made: their ids hold the count of openings and a running number."""
    head, _, tail = id[1:].partition("_")
    try:
        return int(head, 16), int(tail, 16), ""
    except ValueError:
        return 0, 0, id
