"""Evaluates one commit for watches that keep counts: strategies `groups` and `distinct`.

Rows are counted in and out of the groups or distinct rows of each watch; the differences become deltas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vedette.errors import VedetteError
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.union_view import ElementChange
from vedette.values import timestamp_from_ms
from vedette.watch.delta import ADDED, REMOVED, Delta, value_key
from vedette.watch.evaluation.commit_views import CommitViews
from vedette.watch.evaluation.effects import CommitEffects, row_delta
from vedette.watch.evaluation.rows import affected_matches, row_for_watch
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

__all__ = ["count_deltas", "count_row", "evaluate_counted"]


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
    projected = shape.project_row(row)
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
        yield from row_delta(watch.shape, identity, old, new)
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
