"""Random graphs for a random ontology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.properties.graph_model import Item, ModelError, ModelGraph
from tests.properties.ontology_model import OntologyModel, has_attribute

__all__ = ["graphs", "node_values"]

SMALL = st.none() | st.integers(0, 3)


@st.composite
def node_values(draw: Callable[[Any], Any], type_name: str) -> dict[str, Any]:
    """Attributes for a node of this type, but for its key."""
    return {name: draw(SMALL) for name in "nuim" if has_attribute(type_name, name)}


@st.composite
def graphs(draw: Callable[[Any], Any], ontology: OntologyModel) -> ModelGraph:
    """Nodes, then edges wherever they fit and are allowed."""
    graph = ModelGraph(ontology)
    for type_name in draw(st.lists(st.sampled_from("ABCD"), min_size=3, max_size=7)):
        item = Item(len(graph.items) + 1, type_name, {"k": len(graph.items) + 1, **draw(node_values(type_name))})
        try:
            graph.check_unique(item)
        except ModelError:
            item = Item(item.key, type_name, {**item.values, "u": None})
        graph.items[item.key] = item
    names = st.sampled_from(("e0", "e0", "e1", "e1", "flag", "tri", "about"))
    for name in draw(st.lists(names, min_size=3, max_size=14)):
        _add_edge(draw, graph, name)
    return graph


def _add_edge(draw: Callable[[Any], Any], graph: ModelGraph, name: str) -> None:
    kind = graph.ontology.edges[name]
    targets = []
    for end in kind.ends:
        fitting = [key for key in graph.items if graph.fits(key, end)]
        if not fitting:
            return
        targets.append(draw(st.sampled_from(fitting)))
    ends = tuple(targets)
    try:
        graph.check_edge(kind, ends)
    except ModelError:
        return
    if kind.symmetric and graph.twin(kind, ends) is not None:
        return
    key = len(graph.items) + 1
    graph.items[key] = Item(key, name, {"k": key, "w": draw(SMALL)}, ends)
