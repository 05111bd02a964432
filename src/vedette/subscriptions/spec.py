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
"""Start of windows for a spec without a time."""


class SubscriptionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscription asks for, as text that any process can read. Equal specs have one shape."""

    kind: Literal["filters", "cel", "watch"]
    source: str
    """The list as JSON, the expression, or the statement."""
    params: dict[str, Any] = {}
    """Parameters of a statement."""
    auth: dict[str, Any] | None = None
    """`request.auth` at the time of the subscription."""
    time: datetime | None = None
    """`request.time` at the time of the subscription."""
    sight: tuple[ViewRule, ...] | None = None
    """View rules of the subscriber; None if it sees everything."""
    union: str = ""
    """For a windowed watch over several collections: subscriptions of one gateway with this name are one watch."""


def spec_from_query(
    query: Mapping[str, Any], auth: dict[str, Any] | None = None, time: datetime | None = None
) -> SubscriptionSpec:
    """The spec of a query that `vedette.filters.collection_query.parse_query` has accepted."""
    if query.get("filter") is not None:
        return SubscriptionSpec(kind="cel", source=str(query["filter"]), auth=auth, time=time)
    source = msgspec.json.encode(query.get("filters") or []).decode()
    return SubscriptionSpec(kind="filters", source=source, auth=auth, time=time)


def filter_expression(form: SubscriptionSpec) -> Expression:
    """The condition with the request bound and policies applied. Raises FilterError or SubscriptionError E6204."""
    match form.kind:
        case "filters":
            expression = parse_filters(msgspec.json.decode(form.source), TRUSTED_LIMITS)
        case "cel":
            expression = parse_cel(form.source, TRUSTED_LIMITS)
        case "watch":
            expression = parse_collection_watch(form.source, form.params).condition
        case _:
            raise SubscriptionError("E6204", f"a subscription of the kind {form.kind!r} is not known")
    bound = bind_request(expression, FilterRequest(auth=form.auth, time=form.time))
    sight = view_of(form)
    return bound if sight is None else sight.restrict(bound)


def view_of(form: SubscriptionSpec) -> DocumentView | None:
    return compile_view(form.sight) if form.sight is not None else None


def watch_of_spec(form: SubscriptionSpec) -> CollectionWatch | None:
    return parse_collection_watch(form.source, form.params) if form.kind == "watch" else None


def split_constants(form: SubscriptionSpec) -> tuple[Shape, tuple[Constant, ...]]:
    """Split a spec into its shape and its constants."""
    sight, watch = view_of(form), watch_of_spec(form)
    shape, constants = extract_constants(filter_expression(form), sight.hidden if sight is not None else ())
    if watch is None:
        return shape, constants
    shape = replace(shape, columns=watch.columns)
    if not watch.windowed:
        return shape, constants
    # The start of windows and the union name are constants that no filter reads.
    window = watch.options.window
    text = canonical_text(("window", window.kind, window.duration, window.interval, watch.aggregates))
    shape = replace(shape, constants=shape.constants + 2, window=text)
    return shape, (*constants, form.time or EPOCH, form.union)


@lru_cache(maxsize=4096)
def shape_of_spec(form_text: bytes) -> Shape:
    """The shape of a spec in its JSON encoding; the same in every process."""
    return split_constants(msgspec.json.decode(form_text, type=SubscriptionSpec))[0]
