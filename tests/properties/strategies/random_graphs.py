"""Random graphs for a random ontology."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.properties.models.graph import Item, ModelError, ModelGraph
from tests.properties.models.ontology import OntologyModel, has_attribute

__all__ = ["random_graph", "small"]

NAMES = ("e0", "e0", "e0", "e1", "e1", "flag", "tri", "about")


def small(random: Random) -> int | None:
    """Return a value from a small set, so that many elements share it."""
    return random.choice((None, 0, 1, 2, 3))


def random_graph(random: Random, ontology: OntologyModel, nodes: int, edges: int) -> ModelGraph:
    """Create nodes, then edges between types that fit, as far as the ontology allows."""
    graph = ModelGraph(ontology)
    for key in range(1, nodes + 1):
        type_name = random.choice("ABCD")
        item = Item(key, type_name, {"k": key, **_values(random, type_name)})
        try:
            graph.check_unique(item)
        except ModelError:
            item = Item(key, type_name, {**item.values, "u": None})
        graph.items[key] = item
    for _ in range(edges):
        _add_edge(random, graph, random.choice(NAMES))
    return graph


def _values(random: Random, type_name: str) -> dict[str, Any]:
    return {name: small(random) for name in "nuim" if has_attribute(type_name, name)}


def _add_edge(random: Random, graph: ModelGraph, name: str) -> None:
    kind = graph.ontology.edges[name]
    targets = []
    for end in kind.ends:
        fitting = [key for key in graph.items if graph.fits(key, end)]
        if not fitting:
            return
        targets.append(random.choice(fitting))
    ends = tuple(targets)
    try:
        graph.check_edge(kind, ends)
    except ModelError:
        return
    if kind.symmetric and graph.twin(kind, ends) is not None:
        return
    key = len(graph.items) + 1
    graph.items[key] = Item(key, name, {"k": key, "w": small(random)}, ends)
