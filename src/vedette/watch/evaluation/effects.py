"""The index of shapes and watches, and the evaluation of a commit against it. No I/O, no threads.

Shapes are found by the types of the changed elements, watches of a shape by key. Events go to the watches' buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vedette.errors import VedetteError
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.union_view import ElementChange
from vedette.values import timestamp_from_ms
from vedette.watch.buffer import AppendResult
from vedette.watch.delta import ADDED, CHANGED, REMOVED, Delta, value_key
from vedette.watch.evaluation.rows import (
    CommitViews,
    affected_matches,
    evaluate_rows,
    row_for_watch,
    watches_of,
)
from vedette.watch.numbered_table import NumberedTable
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch, WatchDetails

__all__ = [
    "CommitEffects",
    "ShapeIndex",
    "TriggerEffects",
    "comparable_rows",
    "count_deltas",
    "count_row",
    "current_rows",
    "order_values_by_identity",
    "reevaluate",
]


_CANCELLED, _OVERFLOW = WatchStatus.CANCELLED, AppendResult.OVERFLOW
_NO_SHAPES: dict[int, WatchShape] = {}


class CommitEffects:
    """What one commit causes: watches with new events, overflows, failures, and triggers to run."""

    def __init__(self, tick: int, sequence: int, now_ms: int) -> None:
        self.tick, self.sequence, self.now_ms = tick, sequence, now_ms
        self.evaluated_at_ms = now_ms
        """When the commit was evaluated. The transaction may have begun long before."""
        self.notified: dict[int, Watch] = {}
        """Watches with new events."""
        self.overflowed: list[Watch] = []
        self.failures: dict[int, tuple[Watch, VedetteError]] = {}
        """Watches that could not be evaluated, with the error."""
        self.is_replay = False
        """True while replaying the log. Triggers that ran in the original commit are not run again."""
        self.triggers: list[tuple[Watch, Row]] = []
        self.sample = 0
        """The number of a watch whose deltas are collected for the self-check."""
        self.sampled: list[Delta] = []

    def add_delta(self, watch: Watch, delta: Delta, row: Row | None) -> None:
        """Add an event for the watch. An overflow is recorded for the caller, which cancels the watch."""
        if watch.status is _CANCELLED:
            return
        if watch.number == self.sample:
            self.sampled.append(delta)
        details = watch.known_details
        if details is not None and not self._route(watch, details, delta, row):
            return
        if watch.shape.columns:
            self.append_event(watch, delta)

    def _route(self, watch: Watch, details: WatchDetails, delta: Delta, row: Row | None) -> bool:
        """Handle triggers, windows and lagging readers. Return True if the event goes to the buffer as well."""
        if details.actions is not None and delta.type == ADDED and row is not None:
            self.triggers.append((watch, row))
        if not watch.shape.columns or (details.followed_sequence is not None and not self.is_replay):
            return False  # replayed from the log when the reader continues
        if details.window is None:
            return True
        if not watch.shape.aggregates:
            details.window.collect(delta, self.tick, timestamp_from_ms(self.evaluated_at_ms))
        return False

    def add_failure(self, watch: Watch, error: VedetteError) -> None:
        """Record that the watch cannot be evaluated. The caller ends it."""
        self.failures.setdefault(watch.number, (watch, error))

    def append_event(self, watch: Watch, delta: Delta) -> None:
        """Append the event to the watch's buffer."""
        if watch.append_event(delta, self.tick, self.sequence, self.now_ms) is _OVERFLOW:
            self.overflowed.append(watch)
        self.notified[watch.number] = watch


class TriggerEffects(CommitEffects):
    """Collects trigger firings only; appends no events."""

    def append_event(self, watch: Watch, delta: Delta) -> None:
        pass


class ShapeIndex:
    """Shapes by the types they read, and watches by number."""

    def __init__(self, elder: ShapeIndex | None = None) -> None:
        """`elder` is another index of the same database; both share one table of watches."""
        self.watches: NumberedTable[Watch] = elder.watches if elder is not None else NumberedTable()
        self.shapes: dict[int, WatchShape] = {}
        """All shapes that have a watch."""
        self._by_type: dict[str, dict[int, WatchShape]] = {}
        self.layer0_shapes: dict[int, WatchShape] = {}
        """Shapes that read Layer 0."""
        self._time_dependent_shapes: dict[int, WatchShape] = {}
        """Shapes that depend on the time: every commit and tick affects them."""

    def next_number(self) -> int:
        return self.watches.next_number()

    @property
    def has_time_dependent_shapes(self) -> bool:
        return bool(self._time_dependent_shapes)

    # --- watches ----------------------------------------------------------------------------------------------

    def add(self, watch: Watch) -> None:
        shape = watch.shape
        if not shape.key_index.size:
            self._enter_shape(shape)
        shape.key_index.add(
            shape.key_of_constants(watch.constants), shape.range_of_constants(watch.constants), watch
        )
        self.watches[watch.number] = watch

    def remove(self, watch: Watch) -> None:
        """Stop evaluating the watch. It stays in `watches`."""
        shape = watch.shape
        shape.key_index.remove(
            shape.key_of_constants(watch.constants), shape.range_of_constants(watch.constants), watch
        )
        if not shape.key_index.size:
            self._leave_shape(shape)

    def discard(self, watch: Watch) -> None:
        self.watches.pop(watch.number)

    def _enter_shape(self, shape: WatchShape) -> None:
        self.shapes[id(shape)] = shape
        for name in shape.types:
            self._by_type.setdefault(name, {})[id(shape)] = shape
        if shape.time_dependent or "_TickState" in shape.types:
            self._time_dependent_shapes[id(shape)] = shape
        if shape.reads_layer0:
            self.layer0_shapes[id(shape)] = shape

    def _leave_shape(self, shape: WatchShape) -> None:
        self.shapes.pop(id(shape), None)
        for name in shape.types:
            held = self._by_type.get(name)
            if held is not None:
                held.pop(id(shape), None)
        self._time_dependent_shapes.pop(id(shape), None)
        self.layer0_shapes.pop(id(shape), None)

    # --- a commit ---------------------------------------------------------------------------------------------

    def affected_shapes(self, changes: Sequence[ElementChange]) -> list[WatchShape]:
        """The shapes that the changes can affect."""
        if len(changes) == 1 and not self._time_dependent_shapes:  # the common case
            before, after = changes[0]
            return list(self._by_type.get((after or before).type, _NO_SHAPES).values())  # type: ignore[union-attr]
        found: dict[int, WatchShape] = dict(self._time_dependent_shapes)
        for before, after in changes:
            element = after if after is not None else before
            held = self._by_type.get(element.type) if element is not None else None
            if held:
                found.update(held)
        return list(found.values())

    def evaluate_commit(
        self,
        shapes: Iterable[WatchShape],
        changes: Sequence[ElementChange],
        views: CommitViews,
        effects: CommitEffects,
    ) -> None:
        for shape in shapes:
            if shape.strategy == "rows":
                evaluate_rows(shape, changes, views, effects.add_delta, effects.add_failure)
            elif shape.strategy == "reevaluated":
                reevaluate_shape(shape, views, effects)
            else:
                evaluate_counted(shape, changes, views, effects)


# --- groups and distinct rows -----------------------------------------------------------------------------------


def evaluate_counted(
    shape: WatchShape, changes: Sequence[ElementChange], views: CommitViews, effects: CommitEffects
) -> None:
    """Count rows in and out of each watch's groups or distinct rows, then add the differences."""
    touched: dict[int, tuple[Watch, dict[Any, None]]] = {}
    for identity, before, after in affected_matches(shape, changes, views):
        if shape.aggregates and after is not None:
            _touch_windows(shape, identity, before, after, views, effects)
        for row, sign in ((before, -1), (after, 1)):
            for watch in shape.find_watches(row) if row is not None else ():
                if watch.details.window is not None and shape.aggregates:
                    continue
                try:
                    own = row_for_watch(shape, watch, row, views.context_for(watch, after=sign > 0))
                    if own is not None:
                        _, marked = touched.setdefault(watch.number, (watch, {}))
                        marked[count_row(watch, own, sign)] = None
                except VedetteError as error:
                    effects.add_failure(watch, error)
    for watch, marked in touched.values():
        _add_count_deltas(watch, marked, views.context_for(watch, after=True), effects)


def _add_count_deltas(
    watch: Watch, marked: Iterable[Any], context: ExecutionContext, effects: CommitEffects
) -> None:
    try:
        for delta in count_deltas(watch, marked, context):
            effects.add_delta(watch, delta, None)
    except VedetteError as error:
        effects.add_failure(watch, error)


def _touch_windows(
    shape: WatchShape,
    identity: Any,
    before: Row | None,
    after: Row,
    views: CommitViews,
    effects: CommitEffects,
) -> None:
    windowed = [watch for watch in shape.find_watches(after) if watch.details.window is not None]
    if windowed:
        earlier = {watch.number for watch in shape.find_watches(before)} if before is not None else ()
        for watch in windowed:
            _mark_changed_in_window(
                watch, identity, before if watch.number in earlier else None, after, views, effects
            )


def _mark_changed_in_window(
    watch: Watch,
    identity: Any,
    before: Row | None,
    after: Row | None,
    views: CommitViews,
    effects: CommitEffects,
) -> None:
    """Record the matches that were added or changed, for sliding windows over aggregates."""
    shape = watch.shape
    try:
        new = row_for_watch(shape, watch, after, views.context_for(watch, after=True))
        old = row_for_watch(shape, watch, before, views.context_for(watch, after=False))
        if new is not None and (
            old is None or shape.aggregate_input_key(old) != shape.aggregate_input_key(new)
        ):
            watch.details.window.touch(identity, timestamp_from_ms(effects.evaluated_at_ms))
    except VedetteError as error:
        effects.add_failure(watch, error)


def count_row(watch: Watch, row: Row, sign: int) -> Any:
    """Count a row in (`sign` 1) or out (-1). Return the group or distinct row it belongs to."""
    shape, details = watch.shape, watch.details
    if shape.strategy == "groups":
        return details.start_groups(shape).change(shape.contribution(row), sign)
    projected = shape.projected(row)
    identity = value_key(projected)
    details.distinct_counts[identity] = details.distinct_counts.get(identity, 0) + sign
    if sign > 0 or identity not in details.group_rows:
        details.group_rows.setdefault(identity, projected)
    return identity


def count_deltas(watch: Watch, identities: Iterable[Any], context: ExecutionContext) -> Iterable[Delta]:
    details = watch.details
    for identity in identities:
        if watch.shape.strategy == "distinct":
            yield from _distinct_delta(watch, identity)
            continue
        assert details.groups is not None
        results = details.groups.results(identity)
        new = watch.shape.group_row(context, *results) if results is not None else None
        old = details.group_rows.get(identity)
        yield from _row_delta(watch.shape, identity, old, new)
        if new is None:
            details.group_rows.pop(identity, None)
        else:
            details.group_rows[identity] = new


def _distinct_delta(watch: Watch, identity: Any) -> Iterable[Delta]:
    details = watch.details
    count = details.distinct_counts[identity]
    row = details.group_rows[identity]
    published = details.last_result if details.last_result is not None else {}
    details.last_result = published
    if count > 0 and identity not in published:
        published[identity] = row
        yield Delta(ADDED, row, None, identity)
    elif count <= 0:
        del details.distinct_counts[identity]
        details.group_rows.pop(identity, None)
        if published.pop(identity, None) is not None:
            yield Delta(REMOVED, row, None, identity)


def _row_delta(
    shape: WatchShape, identity: Any, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> Iterable[Delta]:
    if old is None and new is not None:
        yield Delta(ADDED, new, None, identity)
    elif new is None and old is not None:
        yield Delta(REMOVED, old, None, identity)
    elif new is not None and old is not None and shape.rows_differ(old, new):
        yield Delta(CHANGED, new, old, identity)


# --- re-evaluation ----------------------------------------------------------------------------------------------


def current_rows(watch: Watch, context: ExecutionContext) -> dict[Any, dict[str, Any]]:
    """All current rows of the watch in the context's view, by identity. Equals a fresh MATCH."""
    shape = watch.shape
    rows = shape.full_query.run(context)
    if not shape.aggregates:
        found = {shape.identity(row): shape.projected(row) for row in rows}
        return {value_key(row): row for row in found.values()} if shape.distinct else found
    assert shape.returns is not None
    return shape.evaluate_groups(rows, context)


def comparable_rows(watch: Watch, context: ExecutionContext) -> dict[Any, Any]:
    """The rows to compare for changes. With windows over aggregates: the aggregate inputs of each match."""
    shape = watch.shape
    if not shape.aggregates or watch.details.window is None:
        return current_rows(watch, context)
    return {shape.identity(row): shape.aggregate_input_key(row) for row in shape.full_query.run(context)}


def order_values_by_identity(watch: Watch, context: ExecutionContext) -> dict[Any, tuple[Any, ...]]:
    """The order values of each match, by identity. Empty if the watch has no order."""
    shape = watch.shape
    if not shape.order or shape.aggregates:
        return {}
    found: dict[Any, tuple[Any, ...]] = {}
    for row in shape.full_query.run(context):
        identity = value_key(shape.projected(row)) if shape.distinct else shape.identity(row)
        found.setdefault(identity, shape.order_values(row))
    return found


def reevaluate_shape(shape: WatchShape, views: CommitViews, effects: CommitEffects) -> None:
    for watch in watches_of(shape):
        try:
            reevaluate(watch, views.context_for(watch, after=True), effects)
        except VedetteError as error:
            effects.add_failure(watch, error)


def reevaluate(watch: Watch, context: ExecutionContext, effects: CommitEffects) -> None:
    """Evaluate the watch and add the differences from its last result."""
    details = watch.details
    old, new = details.last_result or {}, comparable_rows(watch, context)
    details.last_result = new
    details.previously_evaluated_at_ms, details.evaluated_ms = details.evaluated_ms, effects.evaluated_at_ms
    if details.window is not None and watch.shape.aggregates:
        for identity, taken in new.items():
            if old.get(identity) != taken:
                details.window.touch(identity, timestamp_from_ms(effects.evaluated_at_ms))
        return
    acting = details.actions is not None
    matches = {watch.shape.identity(m): m for m in watch.shape.full_query.run(context)} if acting else {}
    former, details.last_order_values = details.last_order_values, order_values_by_identity(watch, context)
    for identity, row in new.items():
        for delta in _row_delta(watch.shape, identity, old.get(identity), row):
            delta.order = details.last_order_values.get(identity, ())
            effects.add_delta(watch, delta, matches.get(identity))
    for identity, row in old.items():
        if identity not in new:
            effects.add_delta(watch, Delta(REMOVED, row, None, identity, former.get(identity, ())), None)
