"""Checks at creation and in EXPLAIN that a watch can be consumed."""

from __future__ import annotations

from vedette.language.resolve.tree import ResolvedNode
from vedette.watch.options import WatchOptions, invalid_option
from vedette.watch.shapes.shape import WatchShape

__all__ = ["check_consumable"]


def check_consumable(shape: WatchShape, options: WatchOptions, *, acts: bool) -> None:
    """Raise E8009 unless the watch delivers single elements. `acts`: the statement has ON MATCH DO."""
    if shape.aggregates or shape.distinct:
        raise invalid_option("mode", "a consumer receives elements; RETURN must not aggregate or be DISTINCT")
    if not shape.columns:
        raise invalid_option("mode", "a consumer receives matches; add RETURN")
    if acts:
        raise invalid_option("mode", "ON MATCH DO delivers nothing; remove one of the two")
    element = shape.claimed_element
    if element is None or not shape.has_claimed_element:
        raise invalid_option("mode", "the pattern must begin with a node or an edge: it is what ACK deletes")
    types = element.types if isinstance(element, ResolvedNode) else element.edge_types
    if any(name.startswith("_") for name in types):
        raise invalid_option("mode", "ACK cannot delete Layer 0 elements; allowed is watch")
    if options.initial.kind == "since":
        raise invalid_option("initial", "since() does not apply to a queue; allowed are full, none")
    if options.initial.kind == "none" and options.delivery == "reliable":
        raise invalid_option("initial", "allowed with delivery: reliable is full")
