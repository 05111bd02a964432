"""Evaluates a watch from scratch and compares the result with the last one: strategy `reevaluated`.

Also returns the current rows of any watch, which equal a fresh MATCH.
"""

from __future__ import annotations

from typing import Any

from vedette.errors import VedetteError
from vedette.language.compile.execution_context import ExecutionContext
from vedette.values import timestamp_from_ms
from vedette.watch.delta import REMOVED, Delta, value_key
from vedette.watch.evaluation.commit_views import CommitViews
from vedette.watch.evaluation.effects import CommitEffects, row_delta
from vedette.watch.evaluation.rows import watches_of
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

__all__ = ["comparable_rows", "current_rows", "order_values_by_identity", "reevaluate", "reevaluate_shape"]


def current_rows(watch: Watch, context: ExecutionContext) -> dict[Any, dict[str, Any]]:
    """All current rows of the watch in the context's view, by identity. Equals a fresh MATCH."""
    shape = watch.shape
    rows = shape.full_query.run(context)
    if not shape.aggregates:
        found = {shape.identity(row): shape.project_row(row) for row in rows}
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
        identity = value_key(shape.project_row(row)) if shape.distinct else shape.identity(row)
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
        for delta in row_delta(watch.shape, identity, old.get(identity), row):
            delta.order = details.last_order_values.get(identity, ())
            effects.add_delta(watch, delta, matches.get(identity))
    for identity, row in old.items():
        if identity not in new:
            effects.add_delta(watch, Delta(REMOVED, row, None, identity, former.get(identity, ())), None)
