"""The records of a plan: its steps, and what the planner reads to choose them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from vedette.language.resolve.tree import (
    ResolvedEdge,
    ResolvedExpression,
    ResolvedNode,
    ResolvedPath,
    ResolvedPattern,
)
from vedette.language.schema.model import Schema

__all__ = [
    "BindEdgeTargets",
    "CheckType",
    "ExpandEdges",
    "FilterRows",
    "FollowPath",
    "GraphStatistics",
    "Plan",
    "PlanContext",
    "PlanStep",
    "ScanEdges",
    "ScanNodes",
    "SeekById",
    "SeekByIndex",
]


class GraphStatistics(Protocol):
    """The sizes that the planner asks for. The committed graph implements it."""

    def count(self, types: Iterable[str]) -> int:
        """Number of elements of these types."""

    def average_degree(self, edge: str, position: int) -> float:
        """Average number of edges of the type at an element at this position."""

    def elements_per_value(self, owner: str, attribute: str) -> float:
        """Average number of elements per value of an indexed attribute."""


@dataclass(frozen=True, slots=True)
class SeekById:
    """Bind the node with the id `key`."""

    node: ResolvedNode
    key: ResolvedExpression


@dataclass(frozen=True, slots=True)
class SeekByIndex:
    """Bind the nodes whose indexed attribute equals `key`. The index belongs to the declaring type `owner`."""

    node: ResolvedNode
    owner: str
    attribute: str
    key: ResolvedExpression


@dataclass(frozen=True, slots=True)
class ScanNodes:
    """Bind every element of the node's types."""

    node: ResolvedNode


@dataclass(frozen=True, slots=True)
class ScanEdges:
    """Bind every edge of the edge's types and its targets."""

    edge: ResolvedEdge


@dataclass(frozen=True, slots=True)
class ExpandEdges:
    """Bind the edges at the bound target `position`; other targets are compared or bound."""

    edge: ResolvedEdge
    position: int


@dataclass(frozen=True, slots=True)
class BindEdgeTargets:
    """The edge itself is bound already; its targets are compared or bound."""

    edge: ResolvedEdge


@dataclass(frozen=True, slots=True)
class FollowPath:
    """Bind or compare the other end of every path."""

    path: ResolvedPath
    forward: bool
    """True to start at the source, False at the target. An unbound start is scanned."""


@dataclass(frozen=True, slots=True)
class CheckType:
    """Test the type of an element that is bound already."""

    node: ResolvedNode


@dataclass(frozen=True, slots=True)
class FilterRows:
    """Test a condition."""

    condition: ResolvedExpression


PlanStep: TypeAlias = (
    SeekById
    | SeekByIndex
    | ScanNodes
    | ScanEdges
    | ExpandEdges
    | BindEdgeTargets
    | FollowPath
    | CheckType
    | FilterRows
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a search, in order."""

    pattern: ResolvedPattern
    steps: tuple[PlanStep, ...]
    estimates: tuple[float, ...]
    """Estimated candidates per incoming row, for each step."""
    bound_before: tuple[frozenset[int], ...]
    """For each step, the registers that are bound before it runs."""
    outer_registers: frozenset[int]
    """Registers of a surrounding pattern, bound before the search starts."""


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What the planner reads, and one function that changes the graph: `ensure_index`."""

    schema: Schema
    statistics: GraphStatistics
    has_index: Callable[[str, str], bool]
    ensure_index: Callable[[str, str], None]
    """Creates an index on (owner, attribute), so that a join by value does not become a cross product."""
