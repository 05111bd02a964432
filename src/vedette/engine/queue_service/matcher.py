"""Keeps the queues of one database equal to what matches: evaluates commits and adds or removes matches.

Equal consume watches of a group share one queue. Each queue has one internal watch (`feed`), which is indexed
separately from the users' watches and matches for all consumers of the queue. The users' watches are consumers of
the queue and are not evaluated themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedette.engine.state.graph_state import Commit
from vedette.errors import VedetteError
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.union_view import ElementChange
from vedette.queue.entry import Delivery, QueuedMatch
from vedette.queue.group import Consumer
from vedette.queue.match_queue import MatchQueue
from vedette.watch.delta import REMOVED, Delta, value_key
from vedette.watch.evaluation.rows import evaluate_rows, watches_of
from vedette.watch.ordering import SortKey, sort_key
from vedette.watch.shape_index import ShapeIndex
from vedette.watch.shapes.conditions import depends_on_time
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.queue_service.service import QueueService

__all__ = ["QueueMatcher"]

_LARGE_ARRIVAL = 256
"""If one commit adds more entries than this to a queue, the thread that waited for the commit admits them in
chunks.
"""


class QueueMatcher:
    """The queues of one database and their matches.

    Call every method with the engine lock held, except `enqueue_durable`.
    """

    def __init__(self, queue_service: QueueService) -> None:
        self._queue_service = queue_service
        self._watch_service = queue_service.watching
        self._database = queue_service.watching.database
        self.shape_index = ShapeIndex()
        """The internal watches, one per queue."""
        self.queues: dict[int, MatchQueue] = {}
        """By the number of the internal watch."""
        self._held_for_tick: dict[int, MatchQueue] = {}
        """Queues with `deliver_on: tick`, which hold new entries until the tick ends."""
        self._without_initial: dict[int, MatchQueue] = {}
        """Queues with `initial: none`, which exclude the matches that existed when they were opened."""
        self.large_arrivals: list[MatchQueue] = []
        """Queues with large additions that wait until their commit is durable."""

    # --- queues -----------------------------------------------------------------------------------------------

    def open_queue(self, watch: Watch, consumer: Consumer) -> MatchQueue:
        """Open a queue with everything that matches now. With `initial: none` only later matches are queued."""
        options = replace(watch.options, visibility="committed")
        feed = Watch(
            self.shape_index.next_number(),
            watch.shape,
            watch.constants,
            options,
            owner=None,
            actor=watch.actor,
            created_ms=watch.created_ms,
        )
        queue = MatchQueue(consumer.group, serialized=options.serialize_by is not None, feed=feed)
        if _can_project_lazily(queue):
            queue.lazy_matches = (
                LazyMatches(self, queue) if watch.shape.order else _UnrankedLazyMatches(self, queue)
            )
        if options.deliver_on == "tick" and not self._database.state.tick_per_commit:
            queue.hold_for_ticks()
            self._held_for_tick[feed.number] = queue
        self.queues[feed.number] = queue
        if options.initial.kind == "none":
            excluded = consumer.queue.excluded_identities if consumer.queue is not None else None
            queue.excluded_identities = (
                excluded.copy() if excluded is not None else set(self._identities(feed))
            )
            self._without_initial[feed.number] = queue
        try:
            self._refresh(queue)
        except VedetteError:
            consumer.group.queues.remove(queue)
            self._forget(queue)
            raise
        self.shape_index.add(feed)
        queue.end_tick()  # existing matches do not wait for a tick
        return queue

    def close_queue(self, queue: MatchQueue) -> None:
        """Close a queue that has no consumers."""
        self.shape_index.remove(queue.feed)
        self.shape_index.discard(queue.feed)
        self._forget(queue)

    def _forget(self, queue: MatchQueue) -> None:
        number = queue.feed.number
        del self.queues[number]
        self._held_for_tick.pop(number, None)
        self._without_initial.pop(number, None)

    # --- commits ----------------------------------------------------------------------------------------------

    def apply_commit(self, commit: Commit) -> None:
        """Apply a commit to the queues. Consumers are notified when the commit is durable."""
        shapes = self.shape_index.affected_shapes(commit.changes)
        if shapes:
            remaining = self._remove_deleted(commit.changes)
            affected = [shape for shape in shapes if remaining or not _is_single_element(shape)]
            if affected:
                self._match_commit(commit, affected, remaining)
        if commit.next_tick > commit.tick and self._held_for_tick:
            for queue in self._held_for_tick.values():
                queue.end_tick()
            self._queue_service.notify_when_durable(self._held_for_tick.values(), commit.sequence)

    def _remove_deleted(self, changes: Sequence[ElementChange]) -> Sequence[ElementChange]:
        """Remove deleted elements from queues whose pattern is a single element. Return the other changes."""
        deleted = [before.id for before, after in changes if after is None and before is not None]
        if not deleted:
            return changes
        dispatcher = self._queue_service.dispatcher
        for id in deleted:
            for entry in dispatcher.entries_of(id):
                if _is_single_element(entry.queue.feed.shape):
                    self._withdraw(entry.queue, id, (id,))
        for queue in self._without_initial.values():
            assert queue.excluded_identities is not None
            queue.excluded_identities.difference_update([(id,) for id in deleted])
        if len(deleted) == len(changes):
            return ()
        return [change for change in changes if change[1] is not None]

    def _match_commit(
        self, commit: Commit, shapes: Sequence[WatchShape], remaining: Sequence[ElementChange]
    ) -> None:
        """Evaluate a commit. `remaining` are the changes that matter to single-element patterns."""
        touched: dict[int, MatchQueue] = {}
        others: Sequence[WatchShape] = shapes
        if not any(before for before, _ in commit.changes):
            for shape in shapes:
                if _is_equal_for_all(shape):
                    self._match_new_elements(shape, commit, touched)
            others = [shape for shape in shapes if not _is_equal_for_all(shape)]
        if others:
            self._match_changes(commit, others, remaining, touched)
        durable = self._database.log_writer.durable_sequence
        for queue in touched.values():  # in chunks, so that the next consumer does not pay for a large commit
            queue.admit_durable(durable)
            if queue.not_durable_count > _LARGE_ARRIVAL and queue not in self.large_arrivals:
                self.large_arrivals.append(queue)
        self._queue_service.notify_when_durable(touched.values(), commit.sequence)

    def enqueue_durable(self) -> None:
        """Admit large commits to their lines once they are durable. Call without the engine lock.

        Works in chunks and releases the lock between them, so that other threads can run.
        """
        while self.large_arrivals:
            with self._database.lock:
                durable = self._database.log_writer.durable_sequence
                for queue in self.large_arrivals:
                    queue.admit_durable(durable, _LARGE_ARRIVAL)
                self.large_arrivals = [
                    queue for queue in self.large_arrivals if queue.has_durable_arrivals(durable)
                ]

    def _match_new_elements(self, shape: WatchShape, commit: Commit, touched: dict[int, MatchQueue]) -> None:
        """Queue new elements for a single-element pattern without per-watch conditions: the common case and the
        fastest.
        """
        assert shape.single_node is not None
        dispatcher, sequence, tick = self._queue_service.dispatcher, commit.sequence, commit.tick
        context = ExecutionContext(self._database.state.graph, self._database.clock.now, tick=tick)
        now = self._queue_service.now if dispatcher.attempts else 0.0
        types, slot = shape.single_node.types, shape.single_node.register
        for _, element in commit.changes:
            if element is None or element.type not in types:
                continue
            row: Row = [None] * shape.register_count
            row[0], row[slot] = context, element
            if shape.shared_tests and not all(closure(row) for closure in shape.shared_tests):
                continue
            for feed in shape.find_watches(row):
                queue = touched[feed.number] = self.queues[feed.number]
                match = (
                    None if queue.lazy_matches is not None else self._match_of_row(queue, (element.id,), row)
                )
                dispatcher.add_match(queue, element.id, match, sequence=sequence, tick=tick, now=now)

    def _match_changes(
        self,
        commit: Commit,
        shapes: Sequence[WatchShape],
        remaining: Sequence[ElementChange],
        touched: dict[int, MatchQueue],
    ) -> None:
        views = self._watch_service.commit_views(self._database.state.graph, commit.changes, commit.tick)
        broken: dict[int, VedetteError] = {}
        gone: list[tuple[MatchQueue, Delta]] = []
        now = self._queue_service.now

        def push(feed: Watch, delta: Delta, row: Row | None) -> None:  # noqa: ARG001 - the signature of `Push`
            queue = touched[feed.number] = self.queues[feed.number]
            if delta.type == REMOVED:
                gone.append((queue, delta))
            else:
                self._add_match(queue, delta, commit, now)

        def fail(feed: Watch, error: VedetteError) -> None:
            broken.setdefault(feed.number, error)

        for shape in shapes:
            if shape.strategy == "rows":
                evaluate_rows(
                    shape, remaining if _is_single_element(shape) else commit.changes, views, push, fail
                )
                continue
            for feed in watches_of(shape):
                queue = touched[feed.number] = self.queues[feed.number]
                try:
                    self._refresh(queue, commit)
                except VedetteError as error:
                    fail(feed, error)
        # Removals come last: an element whose match merely changed must not leave the queue.
        for queue, delta in gone:
            self._remove_match(queue, delta)
        for number, why in broken.items():
            self._fail(self.queues[number], why)

    def _add_match(self, queue: MatchQueue, delta: Delta, commit: Commit, now: float) -> None:
        """Add or update a match, unless `initial: none` excludes it."""
        identity = delta.identity
        if queue.excluded_identities is None or identity not in queue.excluded_identities:
            lazy = queue.lazy_matches is not None
            match = None if lazy else self._queued_match(queue, identity, delta.match or {}, delta.order)
            element = identity[queue.feed.shape.claimed_position]
            self._queue_service.dispatcher.add_match(
                queue, element, match, sequence=commit.sequence, tick=commit.tick, now=now
            )

    def _remove_match(self, queue: MatchQueue, delta: Delta) -> None:
        """Remove one match."""
        if queue.excluded_identities is not None:
            queue.excluded_identities.discard(delta.identity)
        self._withdraw(queue, delta.identity[queue.feed.shape.claimed_position], delta.identity)

    def _withdraw(self, queue: MatchQueue, element: str, identity: Any) -> None:
        dispatcher = self._queue_service.dispatcher
        withdrawn: Delivery | None = dispatcher.remove_match(queue, element, identity)
        if withdrawn is not None:
            self._queue_service.report_withdrawal(withdrawn)
        if dispatcher.attempts and dispatcher.has_orphaned_attempts(element, queue.group.name):
            self._queue_service.settlement.clear_attempts(element, queue.group.name)

    def _fail(self, queue: MatchQueue, error: VedetteError) -> None:
        for consumer in list(queue.consumers):
            self._watch_service.fail(consumer.watch, error)

    # --- matches ----------------------------------------------------------------------------------------------

    def match_of(self, queue: MatchQueue, element: str) -> QueuedMatch:
        """The current match of an element in a queue with lazy matches."""
        return self._match_of_row(queue, (element,), self._row(queue.feed.shape, element))

    def rank_of(self, queue: MatchQueue, element: str) -> SortKey:
        """The rank of the current match of an element."""
        shape = queue.feed.shape
        return sort_key(shape.order_values(self._row(shape, element)), shape.descending)

    def matches_of(self, shape: WatchShape, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        """The projected rows of the elements' current matches."""
        return [shape.project_row(row) for row in self._rows(shape, elements)]

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

    def _match_of_row(self, queue: MatchQueue, identity: Any, row: Row) -> QueuedMatch:
        shape = queue.feed.shape
        return self._queued_match(queue, identity, shape.project_row(row), shape.order_values(row))

    def _queued_match(
        self, queue: MatchQueue, identity: Any, match: Any, order: tuple[Any, ...]
    ) -> QueuedMatch:
        directions = queue.feed.shape.descending
        if not queue.is_serialized:
            return QueuedMatch(identity, match, sort_key(order, directions), None)
        return QueuedMatch(identity, match, sort_key(order[:-1], directions[:-1]), value_key(order[-1]))

    def _current_matches(self, feed: Watch) -> Iterable[tuple[Any, Any, tuple[Any, ...]]]:
        """All current matches, oldest elements first: identity, row, order values."""
        shape = feed.shape
        context = self._watch_service.watch_context(feed, self._database.state.graph)
        rows = {shape.identity(row): row for row in shape.full_query.run(context)}
        for identity in sorted(
            rows, key=lambda ids: [_creation_order(id) for id in (ids[shape.claimed_position], *ids)]
        ):
            row = rows[identity]
            yield identity, shape.project_row(row), shape.order_values(row)

    def _identities(self, feed: Watch) -> Iterable[Any]:
        return (identity for identity, _, _ in self._current_matches(feed))

    def _refresh(self, queue: MatchQueue, commit: Commit | None = None) -> None:
        """Make the queue equal to a fresh evaluation.

        Lazy matches have no stored row to compare, so they are ranked again.
        """
        state, shape, now = self._database.state, queue.feed.shape, self._queue_service.now
        sequence = commit.sequence if commit is not None else state.sequence
        tick = commit.tick if commit is not None else state.tick
        found = {identity: (match, order) for identity, match, order in self._current_matches(queue.feed)}
        if queue.excluded_identities is not None:
            queue.excluded_identities.intersection_update(found)
            found = {
                identity: each
                for identity, each in found.items()
                if identity not in queue.excluded_identities
            }
        lazy, dispatcher = queue.lazy_matches is not None, self._queue_service.dispatcher
        known = {identity: entry for entry in queue.entries for identity in entry.identities()}
        stored = {} if lazy else {w.identity: w for entry in queue.entries for w in entry.matches()}
        for identity, (match, order) in found.items():
            if lazy and identity in known:
                dispatcher.reorder(known[identity], sequence)
                continue
            new_match = None if lazy else self._queued_match(queue, identity, match, order)
            if lazy or stored.get(identity) != new_match:
                dispatcher.add_match(
                    queue, identity[shape.claimed_position], new_match, sequence=sequence, tick=tick, now=now
                )
        for identity in known.keys() - found.keys():
            self._withdraw(queue, identity[shape.claimed_position], identity)

    def refresh_all(self, shapes: Iterable[WatchShape] | None = None) -> None:
        """Re-evaluate queues after a schema change, a reload of the state, or a Layer 0 change."""
        shape_ids = None if shapes is None else {id(shape) for shape in shapes}
        for queue in list(self.queues.values()):
            if shape_ids is not None and id(queue.feed.shape) not in shape_ids:
                continue
            if shapes is None:
                self._queue_service.update_queue_key(queue)
                if queue.lazy_matches is not None and not _can_project_lazily(queue):
                    queue.store_matches()
            try:
                self._refresh(queue)
            except VedetteError as error:
                self._fail(queue, error)
            self._queue_service.notify_when_durable([queue], self._database.state.sequence)

    # --- for tests --------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError unless queues equal a fresh evaluation and the dispatcher is consistent.

        For tests.
        """
        self._queue_service.dispatcher.validate(self.queues.values())
        for queue in self.queues.values():
            shape = queue.feed.shape
            if shape.time_dependent:  # re-evaluated only at a commit or a tick
                continue
            fresh = set(self._identities(queue.feed)) - (queue.excluded_identities or set())
            assert {identity for entry in queue.entries for identity in entry.identities()} == fresh
            assert {identity[shape.claimed_position] for identity in fresh} == {
                entry.element for entry in queue.entries
            }


class LazyMatches:
    """Computes the matches of a queue from the elements when they are delivered, instead of storing a row per
    entry.

    An element that changes leaves the line until the change is durable and is then ranked again, so a lazy match
    equals the one that would have been stored.
    """

    __slots__ = ("_matcher", "_queue")

    def __init__(self, matcher: QueueMatcher, queue: MatchQueue) -> None:
        self._matcher, self._queue = matcher, queue

    def rank(self, element: str) -> SortKey:
        return self._matcher.rank_of(self._queue, element)

    def best_match(self, element: str) -> QueuedMatch:
        return self._matcher.match_of(self._queue, element)

    def rows(self, elements: Sequence[str]) -> list[Mapping[str, Any]]:
        return self._matcher.matches_of(self._queue.feed.shape, elements)


class _UnrankedLazyMatches(LazyMatches):
    """Lazy matches of a queue without ordering: entries are delivered in arrival order."""

    def rank(self, element: str) -> SortKey:  # noqa: ARG002 - entries are unranked
        return ()


def _can_project_lazily(queue: MatchQueue) -> bool:
    """True if a match depends only on its element, is the same for every watch, and does not depend on the time."""
    shape = queue.feed.shape
    timeless = not any(depends_on_time(condition) for condition, _ in shape.resolved.order)
    return _is_equal_for_all(shape) and not queue.is_serialized and timeless


def _is_single_element(shape: WatchShape) -> bool:
    """True if the pattern is a single element, so that only changes of that element can affect a match."""
    return shape.single_node is not None and shape.strategy == "rows"


def _is_equal_for_all(shape: WatchShape) -> bool:
    """True for a single-element pattern whose watches have no conditions or policy views of their own."""
    return shape.single_node is not None and not shape.needs_per_watch_check and shape.strategy == "rows"


def _creation_order(id: str) -> tuple[int, int, str]:
    """Sort key by creation: ids contain the boot count and a running number."""
    head, _, tail = id[1:].partition("_")
    try:
        return int(head, 16), int(tail, 16), ""
    except ValueError:
        return 0, 0, id
