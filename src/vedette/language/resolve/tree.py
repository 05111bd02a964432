"""Resolved expressions and patterns: every name is a register, an attribute index or a constant; every node has a type.

A resolved tree does not contain the literals of its text: `ConstantRef(3)` is constant number 3 of the execution,
counted from 0. All texts that differ only in literals therefore share one resolved tree and one plan.

An execution keeps its variables in a list, the row. A register is an index into this list; register 0 holds the
execution context.
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
    """A literal or parameter, as an index into the constants of the execution."""

    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class FixedValue:
    """A value that is part of the tree: true, false, null, and the literals of declarations."""

    value: Any
    type: Type


@dataclass(frozen=True, slots=True)
class VariableRef:
    """A variable. Its value is the element in a register."""

    register: int
    name: str
    type: Type
    optional: bool = False
    """True if OPTIONAL MATCH binds the variable; then the register may hold None."""


@dataclass(frozen=True, slots=True)
class ElementReference:
    """`#name`, or `#$p` (then `name` is a ConstantRef). The value is an id or None.

    An unquoted name is looked up among the session bindings first; otherwise it is the id itself.
    """

    name: str | ConstantRef
    quoted: bool
    type: Type = ID


@dataclass(frozen=True, slots=True)
class AttributeAccess:
    base: ResolvedExpression
    name: str
    type: Type
    index_by_type: Mapping[str, int] = field(compare=False, hash=False)
    """Index of the attribute by type of the element. For a type that is missing here the value is null."""
    common_index: int | None = field(default=None, compare=False, hash=False)
    """The index, if it is the same for all types that the base may have."""


@dataclass(frozen=True, slots=True)
class DynamicAttributeAccess:
    """An attribute of an element whose type is known only at run time, such as `#x.name`."""

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
    """The concrete types for which the test is true."""
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
    """In lower case."""
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
    """`COUNT(p: Person, …)` or `COLLECT(p: Person, …)`, evaluated for each row. `register` holds `p`."""

    name: str
    pattern: ResolvedPattern
    register: int
    limit: int | None
    type: Type = INT


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over the rows of a group. Its result is stored in `register` when the group is complete."""

    name: str
    """In upper case."""
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
    """A variable and the types that its element may have.

    `implicit`: the variable is not declared, only used as the target of an edge.
    """

    register: int
    name: str
    types: tuple[str, ...]
    """The concrete types that the element may have."""
    type: Type
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedEdge:
    """An edge. A target is a register, an expression whose value is an id, or None for a wildcard."""

    register: int
    """The register of the edge itself."""
    name: str | None
    edge_types: tuple[str, ...]
    """The possible edge types; more than one only for `edge<any>`."""
    targets: tuple[int | ResolvedExpression | None, ...]
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A transitive edge: a path of `min_depth` to `max_depth` edges from `source` to `target`."""

    edge: str
    source: int | ResolvedExpression | None
    target: int | ResolvedExpression | None
    source_types: tuple[str, ...]
    """The types to scan if the start is not bound."""
    types_of_both_ends: frozenset[str]
    """Types that are allowed at both ends. Only an element of such a type has a path of zero edges to itself."""
    min_depth: int
    max_depth: int
    symmetric: bool = False
    depth_is_explicit: bool = False
    """True if the text sets the depth. Otherwise a search that reaches the default depth adds a warning."""


ResolvedPart: TypeAlias = ResolvedNode | ResolvedEdge | ResolvedPath


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    elements: tuple[ResolvedPart, ...]
    where: tuple[ResolvedExpression, ...] = ()
    """The conditions, all of which must be true."""
