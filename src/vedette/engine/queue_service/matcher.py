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
from vedette.language.compile.affected_matches import ElementChange
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.queue.entry import Delivery, QueuedMatch
from vedette.queue.match_queue import Consumer, MatchQueue
from vedette.watch.delta import REMOVED, Delta, value_key
from vedette.watch.evaluation.effects import ShapeIndex
from vedette.watch.evaluation.rows import evaluate_rows, watches_of
from vedette.watch.ordering import SortKey, sort_key
from vedette.watch.shapes.conditions import depends_on_time
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.queue_service.service import QueueService

__all__ = ["QueueMatcher"]

_LARGE_ARRIVAL = 256
"""So many who come at once are let into line by whoever brought them, not by whoever takes next."""


class QueueMatcher:
    """Pools and their matches. Called with the turn held."""

    def __init__(self, consuming: QueueService) -> None:
        self._consuming = consuming
        self._watching = consuming.watching
        self._database = consuming.watching.database
        self.hub = ShapeIndex()
        """The engine's own watches, one for each pool."""
        self.pools: dict[int, MatchQueue] = {}
        """By the number of the engine's own watch."""
        self._held_for_tick: dict[int, MatchQueue] = {}
        """Pools that hold what comes until logical time has moved on."""
        self._without_initial: dict[int, MatchQueue] = {}
        """Pools that do not want what was there before them (initial: none)."""
        self.large_arrivals: list[MatchQueue] = []
        """Pools to which many have come that were not durable then."""

    # --- pools ------------------------------------------------------------------------------------------------

    def open_queue(self, watch: Watch, member: Consumer) -> MatchQueue:
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
        pool = MatchQueue(member.group, serialized=options.serialize_by is not None, source=source)
        if _can_project_lazily(pool):
            pool.lazy_matches = LazyMatches(self, pool) if watch.shape.order else _LateUnranked(self, pool)
        if options.deliver_on == "tick" and not self._database.state.tick_per_commit:
            pool.hold_for_ticks()
            self._held_for_tick[source.number] = pool
        self.pools[source.number] = pool
        if options.initial.kind == "none":
            former = member.pool.excluded_identities if member.pool is not None else None
            pool.excluded_identities = former.copy() if former is not None else set(self._identities(source))
            self._without_initial[source.number] = pool
        try:
            self._refresh(pool)
        except VedetteError:
            member.group.pools.remove(pool)
            self._forget(pool)
            raise
        self.hub.add(source)
        pool.end_tick()  # what was there before needs no tick
        return pool

    def close_queue(self, pool: MatchQueue) -> None:
        """Nobody draws from it any more."""
        self.hub.remove(pool.feed)
        self.hub.discard(pool.feed)
        self._forget(pool)

    def _forget(self, pool: MatchQueue) -> None:
        number = pool.feed.number
        del self.pools[number]
        self._held_for_tick.pop(number, None)
        self._without_initial.pop(number, None)

    # --- commits ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        """What a commit means for the pools; their members are woken when it is durable."""
        shapes = self.hub.affected_shapes(commit.changes)
        if shapes:
            left = self._remove_deleted(commit.changes)
            concerned = [shape for shape in shapes if left or not _is_single_element(shape)]
            if concerned:
                self._match_commit(commit, concerned, left)
        if commit.next_tick > commit.tick and self._held_for_tick:
            for pool in self._held_for_tick.values():
                pool.end_tick()
            self._consuming.notify_when_durable(self._held_for_tick.values(), commit.sequence)

    def _remove_deleted(self, changes: Sequence[ElementChange]) -> Sequence[ElementChange]:
        """Elements that are gone match no pattern of one element, whatever it says; returns the other changes."""
        deleted = [before.id for before, after in changes if after is None and before is not None]
        if not deleted:
            return changes
        desk = self._consuming.dispatcher
        for id in deleted:
            for place in desk.entries_of(id):
                if _is_single_element(place.pool.feed.shape):
                    self._withdraw(place.pool, id, (id,))
        for pool in self._without_initial.values():
            assert pool.excluded_identities is not None
            pool.excluded_identities.difference_update([(id,) for id in deleted])
        if len(deleted) == len(changes):
            return ()
        return [change for change in changes if change[1] is not None]

    def _match_commit(
        self, commit: Commit, shapes: Sequence[WatchShape], left: Sequence[ElementChange]
    ) -> None:
        """`left`: the changes that matter to patterns of one element."""
        touched: dict[int, MatchQueue] = {}
        others: Sequence[WatchShape] = shapes
        if not any(before for before, _ in commit.changes):
            for shape in shapes:
                if _is_equal_for_all(shape):
                    self._match_new_elements(shape, commit, touched)
            others = [shape for shape in shapes if not _is_equal_for_all(shape)]
        if others:
            self._match_changes(commit, others, left, touched)
        durable = self._database.log_writer.durable_sequence
        for pool in touched.values():  # little by little: whoever takes next shall not pay for all who came
            pool.admit_durable(durable)
            if pool.not_durable_count > _LARGE_ARRIVAL and pool not in self.large_arrivals:
                self.large_arrivals.append(pool)
        self._consuming.notify_when_durable(touched.values(), commit.sequence)

    def enqueue_durable(self) -> None:
        """Called without the turn by who has waited for a commit: many came with it, and they stand in line now.

        Little by little, so that others have their turns in between.
        """
        while self.large_arrivals:
            with self._database.lock:
                durable = self._database.log_writer.durable_sequence
                for pool in self.large_arrivals:
                    pool.admit_durable(durable, _LARGE_ARRIVAL)
                self.large_arrivals = [
                    pool for pool in self.large_arrivals if pool.has_durable_arrivals(durable)
                ]

    def _match_new_elements(self, shape: WatchShape, commit: Commit, touched: dict[int, MatchQueue]) -> None:
        """New elements, and a pattern of one element that asks no watch for itself: the commonest, and the quickest."""
        assert shape.single_node is not None
        desk, sequence, tick = self._consuming.dispatcher, commit.sequence, commit.tick
        context = ExecutionContext(self._database.state.graph, self._database.clock.now, tick=tick)
        now = self._consuming.now if desk.attempts else 0.0
        types, slot = shape.single_node.types, shape.single_node.register
        for _, element in commit.changes:
            if element is None or element.type not in types:
                continue
            row: Row = [None] * shape.register_count
            row[0], row[slot] = context, element
            if shape.shared_tests and not all(closure(row) for closure in shape.shared_tests):
                continue
            for source in shape.find_watches(row):
                pool = touched[source.number] = self.pools[source.number]
                want = None if pool.lazy_matches is not None else self._want_of_row(pool, (element.id,), row)
                desk.unblock_key(pool, element.id, want, sequence=sequence, tick=tick, now=now)

    def _match_changes(
        self,
        commit: Commit,
        shapes: Sequence[WatchShape],
        left: Sequence[ElementChange],
        touched: dict[int, MatchQueue],
    ) -> None:
        scene = self._watching.commit_views(self._database.state.graph, commit.changes, commit.tick)
        broken: dict[int, VedetteError] = {}
        gone: list[tuple[MatchQueue, Delta]] = []
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
                evaluate_rows(shape, left if _is_single_element(shape) else commit.changes, scene, push, fail)
                continue
            for source in watches_of(shape):
                pool = touched[source.number] = self.pools[source.number]
                try:
                    self._refresh(pool, commit)
                except VedetteError as error:
                    fail(source, error)
        for pool, delta in gone:  # last: an element that matches otherwise now never stopped matching
            self._remove_match(pool, delta)
        for number, why in broken.items():
            self._fail(self.pools[number], why)

    def _offer(self, pool: MatchQueue, delta: Delta, commit: Commit, now: float) -> None:
        """A match appeared or looks different; initial: none has no eyes for those that were there before."""
        identity = delta.identity
        if pool.excluded_identities is None or identity not in pool.excluded_identities:
            late = pool.lazy_matches is not None
            want = None if late else self._queued_match(pool, identity, delta.match or {}, delta.order)
            element = identity[pool.feed.shape.leading]
            self._consuming.dispatcher.unblock_key(
                pool, element, want, sequence=commit.sequence, tick=commit.tick, now=now
            )

    def _remove_match(self, pool: MatchQueue, delta: Delta) -> None:
        """A match is gone."""
        if pool.excluded_identities is not None:
            pool.excluded_identities.discard(delta.identity)
        self._withdraw(pool, delta.identity[pool.feed.shape.leading], delta.identity)

    def _withdraw(self, pool: MatchQueue, element: str, identity: Any) -> None:
        desk = self._consuming.dispatcher
        told: Delivery | None = desk.remove_match(pool, element, identity)
        if told is not None:
            self._consuming.report_withdrawal(told)
        if desk.attempts and desk.has_orphaned_attempts(element, pool.group.name):
            self._consuming.deliveries.clear_attempts(element, pool.group.name)

    def _fail(self, pool: MatchQueue, error: VedetteError) -> None:
        for member in list(pool.members):
            self._watching.fail(member.watch, error)

    # --- matches ----------------------------------------------------------------------------------------------

    def match_of(self, pool: MatchQueue, element: str) -> QueuedMatch:
        """The one match of an element, as it is now."""
        return self._want_of_row(pool, (element,), self._row(pool.feed.shape, element))

    def rank_of(self, pool: MatchQueue, element: str) -> SortKey:
        """Where the one match of an element stands in line."""
        shape = pool.feed.shape
        return sort_key(shape.order_values(self._row(shape, element)), shape.descending)

    def matches_of(self, shape: WatchShape, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        """What each element's one match looks like now."""
        return [shape.projected(row) for row in self._rows(shape, elements)]

    def _row(self, shape: WatchShape, element: str) -> Row:
        return self._rows(shape, (element,))[0]

    def _rows(self, shape: WatchShape, elements: Sequence[str]) -> list[Row]:
        state, single = self._database.state, shape.single_node
        assert single is not None
        context = ExecutionContext(state.graph, self._database.clock.now, tick=state.tick)
        rows: list[Row] = []
        for element in state.graph.get_many(elements):
            row: Row = [None] * shape.register_count
            row[0], row[single.register] = context, element
            rows.append(row)
        return rows

    def _want_of_row(self, pool: MatchQueue, identity: Any, row: Row) -> QueuedMatch:
        shape = pool.feed.shape
        return self._queued_match(pool, identity, shape.projected(row), shape.order_values(row))

    def _queued_match(
        self, pool: MatchQueue, identity: Any, match: Any, order: tuple[Any, ...]
    ) -> QueuedMatch:
        directions = pool.feed.shape.descending
        if not pool.is_serialized:
            return QueuedMatch(identity, match, sort_key(order, directions), None)
        return QueuedMatch(identity, match, sort_key(order[:-1], directions[:-1]), value_key(order[-1]))

    def _current_matches(self, source: Watch) -> Iterable[tuple[Any, Any, tuple[Any, ...]]]:
        """Everything that matches now, the oldest elements first: identity, match, order."""
        shape = source.shape
        context = self._watching.watch_context(source, self._database.state.graph)
        rows = {shape.identity(row): row for row in shape.full_query.run(context)}
        for identity in sorted(
            rows, key=lambda ids: [_creation_order(id) for id in (ids[shape.leading], *ids)]
        ):
            row = rows[identity]
            yield identity, shape.projected(row), shape.order_values(row)

    def _identities(self, source: Watch) -> Iterable[Any]:
        return (identity for identity, _, _ in self._current_matches(source))

    def _refresh(self, pool: MatchQueue, commit: Commit | None = None) -> None:
        """Make the pool what a fresh evaluation says. What is looked at late has no old looks to compare with."""
        state, shape, now = self._database.state, pool.feed.shape, self._consuming.now
        sequence = commit.sequence if commit is not None else state.sequence
        tick = commit.tick if commit is not None else state.tick
        found = {identity: (match, order) for identity, match, order in self._current_matches(pool.feed)}
        if pool.excluded_identities is not None:
            pool.excluded_identities.intersection_update(found)
            found = {
                identity: each for identity, each in found.items() if identity not in pool.excluded_identities
            }
        late, desk = pool.lazy_matches is not None, self._consuming.dispatcher
        known = {identity: place for place in pool.places for identity in place.identities()}
        looks = {} if late else {w.identity: w for place in pool.places for w in place.wants()}
        for identity, (match, order) in found.items():
            if late and identity in known:
                desk.reorder(known[identity], sequence)
                continue
            want = None if late else self._queued_match(pool, identity, match, order)
            if late or looks.get(identity) != want:
                desk.unblock_key(pool, identity[shape.leading], want, sequence=sequence, tick=tick, now=now)
        for identity in known.keys() - found.keys():
            self._withdraw(pool, identity[shape.leading], identity)

    def refresh_all(self, shapes: Iterable[WatchShape] | None = None) -> None:
        """The ontology grew, the state was read anew, or Layer 0 changed: look again."""
        only = None if shapes is None else {id(shape) for shape in shapes}
        for pool in list(self.pools.values()):
            if only is not None and id(pool.feed.shape) not in only:
                continue
            if shapes is None:
                self._consuming.update_queue_key(pool)
                if pool.lazy_matches is not None and not _can_project_lazily(pool):
                    pool.store_matches()
            try:
                self._refresh(pool)
            except VedetteError as error:
                self._fail(pool, error)
            self._consuming.notify_when_durable([pool], self._database.state.sequence)

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError unless pools are what a fresh evaluation says and the desk agrees; for tests."""
        self._consuming.dispatcher.validate(self.pools.values())
        for pool in self.pools.values():
            shape = pool.feed.shape
            if shape.time_dependent:  # it waits for a commit or a tick
                continue
            fresh = set(self._identities(pool.feed)) - (pool.excluded_identities or set())
            assert {identity for place in pool.places for identity in place.identities()} == fresh
            assert {identity[shape.leading] for identity in fresh} == {place.element for place in pool.places}


class LazyMatches:
    """A million items may wait: their matches are worked out as they are handed out, from the elements as they are.

    An element that changes leaves the line until that is durable, and is ranked anew; so what is looked at late is
    what would have been kept.
    """

    __slots__ = ("_pool", "_supply")

    def __init__(self, supply: QueueMatcher, pool: MatchQueue) -> None:
        self._supply, self._pool = supply, pool

    def rank(self, element: str) -> SortKey:
        return self._supply.rank_of(self._pool, element)

    def best_match(self, element: str) -> QueuedMatch:
        return self._supply.match_of(self._pool, element)

    def rows(self, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        return self._supply.matches_of(self._pool.feed.shape, elements)


class _LateUnranked(LazyMatches):
    """The same where whoever came first is first."""

    def rank(self, element: str) -> SortKey:  # noqa: ARG002 - nobody ranks before another
        return ()


def _can_project_lazily(pool: MatchQueue) -> bool:
    """Whether all of a match follows from its one element, for everybody alike, and whenever it is looked at."""
    shape = pool.feed.shape
    timeless = not any(depends_on_time(condition) for condition, _ in shape.resolved.order)
    return _is_equal_for_all(shape) and not pool.is_serialized and timeless


def _is_single_element(shape: WatchShape) -> bool:
    """Whether its pattern is one element, and a change of that is all that can concern a match."""
    return shape.single_node is not None and shape.strategy == "rows"


def _is_equal_for_all(shape: WatchShape) -> bool:
    """Whether, besides, no watch of it has conditions or eyes of its own."""
    return shape.single_node is not None and not shape.needs_per_watch_check and shape.strategy == "rows"


def _creation_order(id: str) -> tuple[int, int, str]:
    """Elements sort by when they were made: their ids hold the count of openings and a running number."""
    head, _, tail = id[1:].partition("_")
    try:
        return int(head, 16), int(tail, 16), ""
    except ValueError:
        return 0, 0, id
