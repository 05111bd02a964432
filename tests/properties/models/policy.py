"""Policies over the random ontologies, and the part of a graph that they leave visible."""

from __future__ import annotations

from tests.properties.models.graph import Item, ModelGraph

__all__ = ["POLICIES", "seen"]

POLICIES = """
policy nodes: ON MATCH(x: Base) ALLOW IF x.n != 2
policy others: ON MATCH(d: D) ALLOW IF d.n != 1 AND current_actor() != null
policy never: ON MATCH(c: C) DENY IF c.i = 1
policy unflagged: ON MATCH(x: Base) DENY IF EXISTS(flag(f) WHERE f = x AND x.n = 0)
policy heavy: ON MATCH(e: e1) DENY IF e.w = 3
policy hide: ON MATCH(x: A).u DENY IF x.n != 0
policy hide_index: ON MATCH(b: B).i ALLOW IF b.n = 3
policy hide_weight: ON MATCH(e: e0).w DENY IF e.w = 2
"""


def seen(graph: ModelGraph) -> ModelGraph:
    """Return the part of a graph that the policies above leave visible."""
    visible: dict[int, Item] = {}
    for item in graph.items.values():
        if item.targets is None and _node_seen(item, graph):
            visible[item.key] = _masked(item)
    for _ in range(2):  # Edges first: edges about edges depend on the visible edges.
        for item in graph.items.values():
            denied = item.type == "e1" and item.values["w"] == 3
            if item.targets is not None and not denied and all(t in visible for t in item.targets):
                visible[item.key] = _masked(item)
    return ModelGraph(graph.ontology, visible)


def _node_seen(item: Item, graph: ModelGraph) -> bool:
    values = item.values
    if item.type == "D":
        return bool(values["n"] != 1)
    flagged = any(edge.targets == (item.key,) for edge in graph.edges("flag"))
    if (item.type == "C" and values["i"] == 1) or (flagged and values["n"] == 0):
        return False
    return bool(values["n"] != 2)


def _masked(item: Item) -> Item:
    hidden = set()
    if item.type in ("A", "C") and item.values["n"] != 0:
        hidden.add("u")
    if item.type == "B" and item.values["n"] != 3:
        hidden.add("i")
    if item.type == "e0" and item.values["w"] == 2:
        hidden.add("w")
    return Item(
        item.key, item.type, {n: None if n in hidden else v for n, v in item.values.items()}, item.targets
    )
