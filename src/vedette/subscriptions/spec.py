"""What a subscription asks for: a filter list, a CEL expression, or a WATCH over one collection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec

from vedette.errors import SubscriptionError
from vedette.filters.bind_request import bind_request
from vedette.filters.cel_parser import parse_cel
from vedette.filters.filter_list import parse_filters
from vedette.filters.inputs import FilterRequest
from vedette.language.syntax.canonical import canonical_text
from vedette.language.syntax.expressions import Expression
from vedette.policy.collection_policies import ViewRule
from vedette.subscriptions.collection_watch import CollectionWatch, parse_collection_watch
from vedette.subscriptions.policy_view import TRUSTED_LIMITS, DocumentView, compile_view
from vedette.subscriptions.shape import Constant, Shape, extract_constants
from vedette.values import timestamp_from_ms

__all__ = [
    "SubscriptionSpec",
    "filter_expression",
    "shape_of_spec",
    "spec_from_query",
    "split_constants",
    "view_of",
    "watch_of_spec",
]


EPOCH = timestamp_from_ms(0)
"""Start of windows of a spec without a time."""


class SubscriptionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscription asks for, as text that any process can read. Equal specs have one shape.

    Its JSON is stored in the registry, in index segments and in `gateway.window`. A change of these names needs a new
    version of all three: `REGISTRY_SCHEMA.version`, `INDEX_FORMAT` and `gateway.broker.window_file.VERSION`.
    """

    kind: Literal["filters", "cel", "watch"] = msgspec.field(name="kind")
    source: str = msgspec.field(name="source")
    """The filter list as JSON, the CEL expression, or the WATCH statement."""
    params: dict[str, Any] = msgspec.field(name="params", default={})
    """Parameters of a statement."""
    auth: dict[str, Any] | None = msgspec.field(name="auth", default=None)
    """`request.auth` at the time of the subscription."""
    time: datetime | None = msgspec.field(name="time", default=None)
    """`request.time` at the time of the subscription."""
    view: tuple[ViewRule, ...] | None = msgspec.field(name="view", default=None)
    """Policy rules of the subscriber; None if it sees everything."""
    union_id: str = msgspec.field(name="union_id", default="")
    """Set for a windowed watch over several collections. Subscriptions of one gateway with the same id are one
    watch."""


def spec_from_query(
    query: Mapping[str, Any], auth: dict[str, Any] | None = None, time: datetime | None = None
) -> SubscriptionSpec:
    """Return the spec of a query that `vedette.filters.collection_query.parse_query` has accepted."""
    if query.get("filter") is not None:
        return SubscriptionSpec(kind="cel", source=str(query["filter"]), auth=auth, time=time)
    source = msgspec.json.encode(query.get("filters") or []).decode()
    return SubscriptionSpec(kind="filters", source=source, auth=auth, time=time)


def filter_expression(spec: SubscriptionSpec) -> Expression:
    """Return the condition with the request bound and policies applied.

    Raises FilterError or SubscriptionError E6204.
    """
    match spec.kind:
        case "filters":
            expression = parse_filters(msgspec.json.decode(spec.source), TRUSTED_LIMITS)
        case "cel":
            expression = parse_cel(spec.source, TRUSTED_LIMITS)
        case "watch":
            expression = parse_collection_watch(spec.source, spec.params).condition
        case _:
            raise SubscriptionError("E6204", f"a subscription of the kind {spec.kind!r} is not known")
    bound = bind_request(expression, FilterRequest(auth=spec.auth, time=spec.time))
    view = view_of(spec)
    return bound if view is None else view.restrict(bound)


def view_of(spec: SubscriptionSpec) -> DocumentView | None:
    return compile_view(spec.view) if spec.view is not None else None


def watch_of_spec(spec: SubscriptionSpec) -> CollectionWatch | None:
    return parse_collection_watch(spec.source, spec.params) if spec.kind == "watch" else None


def split_constants(spec: SubscriptionSpec) -> tuple[Shape, tuple[Constant, ...]]:
    """Split a spec into its shape and its constants."""
    view, watch = view_of(spec), watch_of_spec(spec)
    shape, constants = extract_constants(filter_expression(spec), view.hidden if view is not None else ())
    if watch is None:
        return shape, constants
    shape = replace(shape, columns=watch.columns)
    if not watch.windowed:
        return shape, constants
    # The start of windows and the union id are constants that no filter reads.
    window = watch.options.window
    text = canonical_text(("window", window.kind, window.duration, window.interval, watch.aggregates))
    shape = replace(shape, constants=shape.constants + 2, window=text)
    return shape, (*constants, spec.time or EPOCH, spec.union_id)


@lru_cache(maxsize=4096)
def shape_of_spec(spec_json: bytes) -> Shape:
    """Return the shape of a spec in its JSON encoding. Cached, because many subscriptions share a shape."""
    return split_constants(msgspec.json.decode(spec_json, type=SubscriptionSpec))[0]
