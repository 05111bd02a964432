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
    """What the planner may know about sizes; the committed graph answers."""

    def count(self, types: Iterable[str]) -> int: ...
    def average_degree(self, edge: str, position: int) -> float: ...
    def elements_per_value(self, owner: str, attribute: str) -> float: ...


@dataclass(frozen=True, slots=True)
class SeekById:
    node: ResolvedNode
    key: ResolvedExpression


@dataclass(frozen=True, slots=True)
class SeekByIndex:
    node: ResolvedNode
    owner: str
    attribute: str
    key: ResolvedExpression


@dataclass(frozen=True, slots=True)
class ScanNodes:
    node: ResolvedNode


@dataclass(frozen=True, slots=True)
class ScanEdges:
    edge: ResolvedEdge


@dataclass(frozen=True, slots=True)
class ExpandEdges:
    """Edges at the bound target `position`; other targets are checked or bound."""

    edge: ResolvedEdge
    position: int


@dataclass(frozen=True, slots=True)
class BindEdgeTargets:
    """The edge itself is bound: its targets are checked or bound."""

    edge: ResolvedEdge


@dataclass(frozen=True, slots=True)
class FollowPath:
    path: ResolvedPath
    forward: bool
    """From the source (True) or from the target; an unbound start ranges over the path's types."""


@dataclass(frozen=True, slots=True)
class CheckType:
    node: ResolvedNode


@dataclass(frozen=True, slots=True)
class FilterRows:
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
    """Steps in order, with the planner's estimate of candidates per incoming row for each."""

    pattern: ResolvedPattern
    steps: tuple[PlanStep, ...]
    estimates: tuple[float, ...]
    bound_before: tuple[frozenset[int], ...]
    """Registers bound before each step."""
    outer_registers: frozenset[int]
    """Registers that were bound before the pattern began."""


@dataclass(frozen=True, slots=True)
class PlanContext:
    schema: Schema
    statistics: GraphStatistics
    has_index: Callable[[str, str], bool]
    ensure_index: Callable[[str, str], None]
    """Makes an index on (owner, attribute): joins by value must not be cross products."""
