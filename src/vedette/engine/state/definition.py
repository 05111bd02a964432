"""What a grown ontology means for elements that exist: room for new attributes, and their defaults."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from vedette.element import Element
from vedette.graph.graph import Graph
from vedette.graph.type_layout import SchemaTables
from vedette.graph.value_builders import compile_builders
from vedette.language.compile.affected_matches import Difference
from vedette.language.compile.execution_context import Context
from vedette.language.compile.patterns import PatternChains
from vedette.language.plan.planner import PlanContext
from vedette.language.schema.model import EdgeType, NodeType, Schema

__all__ = ["grown_elements"]


def grown_elements(
    graph: Graph, old: Schema, new: Schema, now: Callable[[], datetime]
) -> tuple[list[Difference], dict[str, Element]]:
    """Changes for elements that get a default, and every element that needs more room, laid out for the new schema."""
    changes: list[Difference] = []
    padded: dict[str, Element] = {}
    tables = SchemaTables(new)
    chains = PatternChains(
        PlanContext(new, graph, lambda owner, attribute: False, lambda owner, attribute: None)
    )
    for name in graph.types:
        before, after = _holder(old, name), _holder(new, name)
        added = len(after.layout) - len(before.layout)
        if added <= 0:
            continue
        builders = compile_builders(tables.types[name], (), chains)[len(before.layout) :]
        row: list[Any] = [Context(view=graph, now=now)]
        fresh = tuple(build(row) for build in builders)
        for element in graph.types[name].values():
            bare = Element(element.id, name, element.values + (None,) * added, element.targets)
            padded[element.id] = bare
            if any(value is not None for value in fresh):
                changes.append((bare, Element(element.id, name, element.values + fresh, element.targets)))
    return changes, padded


def _holder(schema: Schema, name: str) -> NodeType | EdgeType:
    return schema.nodes.get(name) or schema.edges[name]
