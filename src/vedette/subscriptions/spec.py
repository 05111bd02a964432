"""The forms in which a subscription says what it wants: a filter list, a CEL expression, a WATCH of one collection."""

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
from vedette.filters.document_filter import Request
from vedette.filters.filter_list import parse_filters
from vedette.language.syntax.canonical import canonical_text
from vedette.language.syntax.expressions import Expression
from vedette.policy.collection_policies import SightRule
from vedette.subscriptions.collection_watch import WatchForm, read_watch
from vedette.subscriptions.policy_view import ACCEPTED, DocumentSight, read_sight
from vedette.subscriptions.shape import Constant, Shape, lift
from vedette.values import timestamp_from_ms

__all__ = ["Form", "expression_of", "form_of_query", "shape_of", "sight_of", "take_apart", "watch_of"]


EPOCH = timestamp_from_ms(0)
"""When windows of a form without a time begin."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscription wants, as text that any process understands. Equal forms have one shape."""

    kind: Literal["filters", "cel", "watch"]
    source: str
    """The list as JSON, the expression, or the statement."""
    params: dict[str, Any] = {}
    """Parameters of a statement."""
    auth: dict[str, Any] | None = None
    """`request.auth` at the moment of subscribing (ruling 16)."""
    time: datetime | None = None
    """`request.time`, as well."""
    sight: tuple[SightRule, ...] | None = None
    """What policies show whoever subscribed; None: everything."""
    union: str = ""
    """Of a watch with windows over several collections: subscriptions of one gateway with the same name are one."""


def form_of_query(
    query: Mapping[str, Any], auth: dict[str, Any] | None = None, time: datetime | None = None
) -> Form:
    """The form of a query that `vedette.filters.collection_query.parse_query` has accepted."""
    if query.get("filter") is not None:
        return Form(kind="cel", source=str(query["filter"]), auth=auth, time=time)
    source = msgspec.json.encode(query.get("filters") or []).decode()
    return Form(kind="filters", source=source, auth=auth, time=time)


def expression_of(form: Form) -> Expression:
    """The condition, with the request bound, through the actor's eyes; FilterError or SubscriptionError E6204."""
    match form.kind:
        case "filters":
            expression = parse_filters(msgspec.json.decode(form.source), ACCEPTED)
        case "cel":
            expression = parse_cel(form.source, ACCEPTED)
        case "watch":
            expression = read_watch(form.source, form.params).condition
        case _:
            raise SubscriptionError("E6204", f"a subscription of the kind {form.kind!r} is not known")
    bound = bind_request(expression, Request(auth=form.auth, time=form.time))
    sight = sight_of(form)
    return bound if sight is None else sight.through(bound)


def sight_of(form: Form) -> DocumentSight | None:
    return read_sight(form.sight) if form.sight is not None else None


def watch_of(form: Form) -> WatchForm | None:
    return read_watch(form.source, form.params) if form.kind == "watch" else None


def take_apart(form: Form) -> tuple[Shape, tuple[Constant, ...]]:
    """The shape of a form, which many share, and its constants."""
    sight, watch = sight_of(form), watch_of(form)
    shape, constants = lift(expression_of(form), sight.hidden if sight is not None else ())
    if watch is None:
        return shape, constants
    shape = replace(shape, returns=watch.columns)
    if not watch.windowed:
        return shape, constants
    # Windows begin when the watch was made, and may be of several subscriptions: constants that no filter asks for.
    window = watch.options.window
    text = canonical_text(("window", window.kind, window.duration, window.interval, watch.aggregates))
    shape = replace(shape, constants=shape.constants + 2, window=text)
    return shape, (*constants, form.time or EPOCH, form.union)


@lru_cache(maxsize=4096)
def shape_of(form_text: bytes) -> Shape:
    """The shape of a form in its JSON encoding; the same for every process."""
    return take_apart(msgspec.json.decode(form_text, type=Form))[0]
