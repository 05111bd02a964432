"""Adapts existing elements to a changed ontology: room for new attributes, and their defaults."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from vedette.element import Element
from vedette.graph.graph import Graph
from vedette.graph.type_layout import SchemaLayout
from vedette.graph.value_builders import compile_value_builders
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.compile.union_view import ElementChange
from vedette.language.plan.steps import PlanContext
from vedette.language.schema.model import EdgeType, NodeType, Schema

__all__ = ["pad_elements"]


def pad_elements(
    graph: Graph, old: Schema, new: Schema, now: Callable[[], datetime]
) -> tuple[list[ElementChange], dict[str, Element]]:
    """Return changes for elements that get a default, and all elements that need more room, in the new layout."""
    changes: list[ElementChange] = []
    padded: dict[str, Element] = {}
    tables = SchemaLayout(new)
    compiler = PatternCompiler(
        PlanContext(new, graph, lambda owner, attribute: False, lambda owner, attribute: None)
    )
    for name in graph.types:
        before, after = _holder(old, name), _holder(new, name)
        added = len(after.layout) - len(before.layout)
        if added <= 0:
            continue
        builders = compile_value_builders(tables.types[name], (), compiler)[len(before.layout) :]
        row: list[Any] = [ExecutionContext(view=graph, now=now)]
        fresh = tuple(build(row) for build in builders)
        for element in graph.types[name].values():
            bare = Element(element.id, name, element.values + (None,) * added, element.targets)
            padded[element.id] = bare
            if any(value is not None for value in fresh):
                changes.append((bare, Element(element.id, name, element.values + fresh, element.targets)))
    return changes, padded


def _holder(schema: Schema, name: str) -> NodeType | EdgeType:
    return schema.nodes.get(name) or schema.edges[name]
