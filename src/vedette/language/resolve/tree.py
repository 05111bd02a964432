"""Expressions and patterns after resolution: every name is a register, a place or a constant, every node has a type.

A resolved tree contains no constants of its text: `ConstantRef(3)` is the third constant of the execution.
So one resolved tree, and the plan made from it, is the *shape* of all texts that differ only in constants.

Registers: an execution keeps its variables in a list, `row`; `row[0]` is the execution's context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from vedette.language.types import ANY_VALUE, BOOL, ID, INT, STRING, Type

__all__ = [
    "AggregateCall",
    "AttributeAccess",
    "BinaryOperation",
    "ConstantRef",
    "ContextFunction",
    "DynamicAttributeAccess",
    "ElementReference",
    "FixedValue",
    "FunctionCall",
    "IdOf",
    "InList",
    "IsNull",
    "ListValue",
    "Negate",
    "Not",
    "ResolvedEdge",
    "ResolvedExists",
    "ResolvedExpression",
    "ResolvedNode",
    "ResolvedPart",
    "ResolvedPath",
    "ResolvedPattern",
    "ResolvedPatternAggregate",
    "TargetsOf",
    "TypeIs",
    "TypeOf",
    "VariableRef",
]


@dataclass(frozen=True, slots=True)
class ConstantRef:
    """A literal or parameter: its place in the execution's constants."""

    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class FixedValue:
    """A value that is part of the shape: true, false, null, and constants of declarations."""

    value: Any
    type: Type


@dataclass(frozen=True, slots=True)
class VariableRef:
    """A variable: the element in a register."""

    register: int
    name: str
    type: Type
    optional: bool = False
    """Bound by OPTIONAL MATCH: the register may hold None."""


@dataclass(frozen=True, slots=True)
class ElementReference:
    """`#name`: a session binding, else the literal id. A Constant name is `#$p`. The value is an id, or None."""

    name: str | ConstantRef
    quoted: bool
    type: Type = ID


@dataclass(frozen=True, slots=True)
class AttributeAccess:
    base: ResolvedExpression
    name: str
    type: Type
    index_by_type: Mapping[str, int] = field(compare=False, hash=False)
    """Where each type that the base can have keeps the attribute; a type that is not here has none: null."""
    common_index: int | None = field(default=None, compare=False, hash=False)
    """The one place, when every type that the base can have keeps it there."""


@dataclass(frozen=True, slots=True)
class DynamicAttributeAccess:
    """An attribute of something whose type only the run will show, such as `#x.name`."""

    base: ResolvedExpression
    name: str
    index_by_type: Mapping[str, int] = field(compare=False, hash=False)
    type: Type = ANY_VALUE


@dataclass(frozen=True, slots=True)
class IdOf:
    base: ResolvedExpression
    type: Type = ID


@dataclass(frozen=True, slots=True)
class TypeOf:
    base: ResolvedExpression
    type: Type = STRING


@dataclass(frozen=True, slots=True)
class TargetsOf:
    base: ResolvedExpression
    type: Type = ANY_VALUE


@dataclass(frozen=True, slots=True)
class TypeIs:
    base: ResolvedExpression
    names: frozenset[str]
    """The concrete types that make it true."""
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Not:
    operand: ResolvedExpression
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Negate:
    operand: ResolvedExpression
    type: Type


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: ResolvedExpression
    negated: bool
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class BinaryOperation:
    op: str
    left: ResolvedExpression
    right: ResolvedExpression
    type: Type


@dataclass(frozen=True, slots=True)
class InList:
    item: ResolvedExpression
    items: ResolvedExpression
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class ListValue:
    items: tuple[ResolvedExpression, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class FunctionCall:
    name: str
    """Lower-case."""
    arguments: tuple[ResolvedExpression, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class ContextFunction:
    """now(), wall_time(), logical_time(), current_actor(), current_session(), operation(), target() …"""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class ResolvedExists:
    pattern: ResolvedPattern
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class ResolvedPatternAggregate:
    """A pattern aggregate: `COUNT(p: Person, …)` or `COLLECT(p: Person, …)`, evaluated per row."""

    name: str
    pattern: ResolvedPattern
    register: int
    limit: int | None
    type: Type = INT


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over the rows of a group; its result is put into register `slot` when the group is complete."""

    name: str
    """Upper-case."""
    operand: ResolvedExpression | None
    distinct: bool
    where: ResolvedExpression | None
    limit: int | None
    register: int
    type: Type


ResolvedExpression: TypeAlias = (
    ConstantRef
    | FixedValue
    | VariableRef
    | ElementReference
    | AttributeAccess
    | DynamicAttributeAccess
    | IdOf
    | TypeOf
    | TargetsOf
    | TypeIs
    | Not
    | Negate
    | IsNull
    | BinaryOperation
    | InList
    | ListValue
    | FunctionCall
    | ContextFunction
    | ResolvedExists
    | ResolvedPatternAggregate
    | AggregateCall
)


# --- patterns ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResolvedNode:
    """A variable and the types its element may have. `implicit`: only named as the target of an edge."""

    register: int
    name: str
    types: tuple[str, ...]
    """Concrete types."""
    type: Type
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedEdge:
    """One stored edge. A target is a register, an expression that yields an id, or None for a wildcard."""

    register: int
    """Where the edge itself goes."""
    name: str | None
    edge_types: tuple[str, ...]
    """Edge types; several only for `edge<any>`."""
    targets: tuple[int | ResolvedExpression | None, ...]
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A transitive edge: from `source` to `target` in `low` to `high` steps."""

    edge: str
    source: int | ResolvedExpression | None
    target: int | ResolvedExpression | None
    source_types: tuple[str, ...]
    """Types that an unbound start ranges over."""
    types_of_both_ends: frozenset[str]
    """Types that fit both ends: those of an element that is joined to itself by a path of no edges."""
    min_depth: int
    max_depth: int
    symmetric: bool = False
    depth_is_explicit: bool = False
    """Whether the depth was written (a default depth that cuts a search short is worth a warning)."""


ResolvedPart: TypeAlias = ResolvedNode | ResolvedEdge | ResolvedPath


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    elements: tuple[ResolvedPart, ...]
    where: tuple[ResolvedExpression, ...] = ()
    """Conjuncts."""
