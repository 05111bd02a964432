"""EXPLAIN WATCH: how a watch is evaluated, what a change costs, and its guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.engine.context.result import Result
from vedette.engine.watch_service.compile import compile_watch
from vedette.engine.watch_service.consume_checks import check_consumable
from vedette.engine.watch_service.options import option_evaluator
from vedette.engine.watch_service.rights import check_watch_rights
from vedette.language.resolve.explain import explain_expression
from vedette.language.resolve.tree import ResolvedExpression, ResolvedNode
from vedette.language.syntax import statements as ast
from vedette.values import duration_to_text
from vedette.watch.options import WatchOptions, read_options
from vedette.watch.shapes.shape import WatchShape

if TYPE_CHECKING:
    from vedette.engine.context.request import StatementRequest

__all__ = ["explain_watch"]

_ORDERINGS = {
    "arrival": "arrival: in the order of commits",
    "causal": "causal: in the order of commits; what a trigger causes follows its cause",
    "attribute": "attribute: buffered events are sorted on delivery; events of one match keep their order",
}
_DELIVERIES = {
    "best_effort": "best effort: at most once; beyond the buffer {on_full}; ends with its session",
    "reliable": "reliable: at least once, each event with its position; outlives the session and a restart",
}
_FULL = {
    "drop": "the oldest is dropped and counted",
    "block": "commits wait",
    "error": "the watch ends with E8005",
}
_STRATEGIES = {
    "rows": "incremental: each match that is added, removed or changed is an event",
    "groups": "incremental: rows are counted in and out of their groups",
    "distinct": "incremental: rows are counted; the first and the last equal row are events",
    "reevaluated": "re-evaluated at every commit that can affect it, and compared with the last result",
}
_WORK = "incremental: each match that is added, removed or changed updates the queue"
_LINES = {
    "arrival": "arrival: the oldest first, also after a redelivery",
    "causal": "causal: the oldest first, also after a redelivery",
    "attribute": "attribute: strict priority over all queued elements by their current values; ties by arrival",
}
_ONE_HOLDER = "one holder at a time, over all consume watches"
_CONSUMED = "at least once, acknowledged once; attempts, delays and dead letters survive a restart"
_HOLDS = {
    "best_effort": "its deliveries are released when its session ends",
    "reliable": "so does the watch; attaching within the lease keeps its deliveries",
}


def explain_watch(request: StatementRequest, statement: ast.Watch) -> Result:
    with request.session.lock_scope:
        values = option_evaluator(request)
        options = read_options(statement.options, values)
        guarded = request.session.actor is not None and bool(request.database.schema.policies)
        inner = request.for_inner(statement)
        compiled = compile_watch(inner, options, guarded=guarded)
        shape = compiled.shape
        if guarded:
            check_watch_rights(inner, compiled)  # a denied watch must not be explained
        if options.mode == "consume":
            check_consumable(shape, options, acts=bool(statement.actions))
    return Result(columns=("aspect", "value"), rows=[*_evaluation(shape), *_promises(shape, options)])


def _evaluation(shape: WatchShape) -> list[tuple[str, str]]:
    keys = [f"{explain_expression(side)} = ?{index + 1}" for side, index in shape.keys]
    ranged = shape.range
    wide = sorted(name for name in shape.finder.full_scan_types if not name.startswith("_"))
    return [
        ("host", "engine, at commit"),
        ("mode", _mode(shape)),
        (
            "concerned by",
            ", ".join(sorted(n for n in shape.types if shape.reads_layer0 or not n.startswith("_")))
            or "nothing",
        ),
        ("key columns", ", ".join(keys) or "none: every watch of this shape is checked"),
        (
            "range",
            f"{explain_expression(ranged[0])} {ranged[1]} ?{ranged[2] + 1}" if ranged is not None else "none",
        ),
        ("residual", " AND ".join(map(explain_expression, shape.residual)) or "none"),
        ("cost per change", _cost(shape, wide)),
    ]


def _mode(shape: WatchShape) -> str:
    if shape.time_dependent:
        return "re-evaluated at every commit and tick: it depends on the time"
    if shape.reads_layer0 and shape.strategy == "reevaluated":
        return "re-evaluated when a Layer 0 element that it reads changes"
    return _WORK if shape.resolved.is_consume else _STRATEGIES[shape.strategy]


def _cost(shape: WatchShape, wide: list[str]) -> str:
    if wide:
        return (
            f"all matches, when one of these changes: {', '.join(wide)}; else the matches around the change"
        )
    if shape.single_node is not None:
        return "the changed element alone, then the watches under its key"
    return "the matches around the changed element, then the watches under their keys"


def _promises(shape: WatchShape, options: WatchOptions) -> list[tuple[str, str]]:
    guarded = (
        [("policies", "each match is checked against the actor's rights at every event")]
        if shape.checks_policies
        else []
    )
    if options.mode == "consume":
        return [*guarded, *_consumer_promises(shape, options)]
    return [
        *guarded,
        ("ordering", _ORDERINGS[options.ordering.kind]),
        ("delivery", _DELIVERIES[options.delivery].format(on_full=_FULL[options.on_full])),
        ("visibility", f"{options.visibility}, delivered on {options.deliver_on}"),
    ]


def _consumer_promises(shape: WatchShape, options: WatchOptions) -> list[tuple[str, str]]:
    deliveries = options.max_redeliveries + 1
    attempts = f"at most {deliveries} {'delivery' if deliveries == 1 else 'deliveries'}, then a dead letter"
    lease = duration_to_text(options.ack_timeout)
    bound = f"at most {options.buffer} for this watch"
    group = "none: the only consumer of its queue"
    if options.group is not None:
        group = f"{options.group}: each element goes to one consumer, in fair shares"
    if options.max_in_flight is not None:
        bound += f", {options.max_in_flight} for its group"
    serial = shape.resolved.order[-1][0] if options.serialize_by is not None else None
    return [
        ("ordering", _LINES[options.ordering.kind]),
        *([("serialized by", _serial(serial))] if serial is not None else []),
        ("claim", _claim(shape)),
        ("group", group),
        ("in hand", bound),
        ("lease", f"{lease}, then it counts as failed; EXTEND renews it"),
        ("attempts", attempts if options.dead_letter is None else f"{attempts}, in the destination"),
        ("delivery", f"{_CONSUMED}; {_HOLDS[options.delivery]}"),
        ("visibility", f"committed, delivered on {options.deliver_on}"),
    ]


def _serial(key: ResolvedExpression) -> str:
    return f"{explain_expression(key)}: one at a time of each value, in order"


def _claim(shape: WatchShape) -> str:
    element = shape.claimed_element
    assert element is not None
    if isinstance(element, ResolvedNode):
        return f"{element.name}: {_ONE_HOLDER}; ACK kills it"
    return f"{element.name or ' | '.join(element.edge_types)}: {_ONE_HOLDER}; ACK unlinks it"
