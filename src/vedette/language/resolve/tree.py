"""Expressions and patterns after resolution: every name is a register, a place or a constant, every node has a type.

A resolved tree contains no constants of its text: `ConstantRef(3)` is the third constant of the execution.
So one resolved tree, and the plan made from it, is the *shape* of all texts that differ only in constants.

Registers: an execution keeps its variables in a list, `row`; `row[0]` is the execution's context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
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
    "can_raise",
    "child_expressions",
    "registers_read",
    "split_conjuncts",
    "transform_expression",
    "walk_expression",
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


def split_conjuncts(condition: ResolvedExpression | None) -> tuple[ResolvedExpression, ...]:
    """Split a condition at its top-level ANDs, left to right."""
    if condition is None:
        return ()
    if isinstance(condition, BinaryOperation) and condition.op == "AND":
        return split_conjuncts(condition.left) + split_conjuncts(condition.right)
    return (condition,)


def walk_expression(condition: ResolvedExpression) -> Iterator[ResolvedExpression]:
    """The condition and everything inside it, nested patterns included."""
    pending = [condition]
    while pending:
        item = pending.pop()
        yield item
        pending.extend(child_expressions(item))


_CHILDREN = frozenset(
    {"base", "operand", "left", "right", "item", "items", "arguments", "pattern", "where", "name"}
)


def child_expressions(condition: ResolvedExpression) -> Iterator[ResolvedExpression]:
    """The conditions directly inside this one; of a nested pattern, its conditions and computed targets."""
    for part in (getattr(condition, f.name) for f in fields(condition) if f.name in _CHILDREN):
        if isinstance(part, ResolvedPattern):
            yield from part.where
            for element in part.elements:
                yield from _element_expressions(element)
        elif isinstance(part, tuple):
            yield from part
        elif part is not None and not isinstance(part, str):
            yield part


def transform_expression(
    condition: ResolvedExpression, change: Callable[[ResolvedExpression], ResolvedExpression | None]
) -> ResolvedExpression:
    """The condition with parts exchanged: where `change` yields something, that; elsewhere its parts, rebuilt."""
    changed = change(condition)
    if changed is not None:
        return changed
    parts: dict[str, Any] = {}
    for f in fields(condition):
        value = getattr(condition, f.name)
        if f.name not in _CHILDREN or value is None or isinstance(value, (str, ResolvedPattern)):
            continue
        if isinstance(value, tuple):
            parts[f.name] = tuple(transform_expression(part, change) for part in value)
        else:
            parts[f.name] = transform_expression(value, change)
    return replace(condition, **parts) if parts else condition


def _element_expressions(element: ResolvedPart) -> tuple[ResolvedExpression, ...]:
    match element:
        case ResolvedEdge():
            return tuple(t for t in element.targets if t is not None and not isinstance(t, int))
        case ResolvedPath():
            return tuple(
                t for t in (element.source, element.target) if t is not None and not isinstance(t, int)
            )
    return ()


_UNCERTAIN = frozenset({"Any", "Union"})
_ORDER = frozenset({"<", "<=", ">", ">="})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "++"})
_RAISING_FUNCTIONS = frozenset({"ceil", "floor", "replace", "round", "timestamp"})


def can_raise(condition: ResolvedExpression) -> bool:
    """Whether evaluating it may raise: a division, a picky function, an operator over values of unknown types.

    Timestamps and durations that leave their range are not counted: nobody guards against that with AND.
    """
    return any(_raises(part) for part in walk_expression(condition))


def _raises(part: ResolvedExpression) -> bool:
    match part:
        case BinaryOperation(op=op, left=left, right=right):
            kinds = {left.type.kind, right.type.kind}
            if op in ("/", "%"):
                return right.type.kind != "Float" or bool(kinds & _UNCERTAIN)
            return op in _ORDER | _ARITHMETIC and bool(kinds & _UNCERTAIN)
        case Negate(operand=operand):
            return operand.type.kind in _UNCERTAIN
        case FunctionCall(name=name, arguments=arguments):
            return name in _RAISING_FUNCTIONS or any(
                argument.type.kind in _UNCERTAIN for argument in arguments
            )
    return False


def registers_read(condition: ResolvedExpression) -> frozenset[int]:
    """Registers of the surrounding pattern that the condition reads; those that nested patterns bind do not count."""
    found: set[int] = set()
    bound: set[int] = set()
    for item in walk_expression(condition):
        if isinstance(item, VariableRef):
            found.add(item.register)
        elif isinstance(item, (ResolvedExists, ResolvedPatternAggregate)):
            for element in item.pattern.elements:
                found.update(_target_slots(element))
                if isinstance(element, (ResolvedNode, ResolvedEdge)):
                    bound.add(element.register)
    return frozenset(found - bound)


def _target_slots(element: ResolvedPart) -> tuple[int, ...]:
    match element:
        case ResolvedEdge():
            return tuple(t for t in element.targets if isinstance(t, int))
        case ResolvedPath():
            return tuple(t for t in (element.source, element.target) if isinstance(t, int))
    return ()
