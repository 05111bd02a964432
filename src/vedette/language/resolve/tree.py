"""Expressions and patterns after resolution: every name is a register, a place or a constant, every node has a type.

A resolved tree holds no constants of its text: `Constant(3)` is the third value of the tuple that an execution brings.
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
    "AttributeOf",
    "Condition",
    "Constant",
    "ContextValue",
    "DynamicAttribute",
    "EdgeElement",
    "ExistsIn",
    "Fixed",
    "FunctionCall",
    "IdOf",
    "InList",
    "IsNull",
    "ListOf",
    "Negate",
    "NodeElement",
    "Not",
    "Operation",
    "PathElement",
    "PatternElement",
    "PatternFold",
    "Reference",
    "ResolvedPattern",
    "Slot",
    "TargetsOf",
    "TypeIs",
    "TypeOf",
    "can_fail",
    "children",
    "conjuncts",
    "rebuild",
    "slots_of",
    "subexpressions",
]


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal or parameter: its place in the execution's constants."""

    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that is part of the shape: true, false, null, and constants of declarations."""

    value: Any
    type: Type


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable: the element in a register."""

    slot: int
    name: str
    type: Type
    optional: bool = False
    """Bound by OPTIONAL MATCH: the register may hold None."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`#name`: a session binding, else the literal id. A Constant name is `#$p`. The value is an id, or None."""

    name: str | Constant
    quoted: bool
    type: Type = ID


@dataclass(frozen=True, slots=True)
class AttributeOf:
    base: Condition
    name: str
    type: Type
    places: Mapping[str, int] = field(compare=False, hash=False)
    """Where each type that the base can have keeps the attribute; a type that is not here has none: null."""
    place: int | None = field(default=None, compare=False, hash=False)
    """The one place, when every type that the base can have keeps it there."""


@dataclass(frozen=True, slots=True)
class DynamicAttribute:
    """An attribute of something whose type only the run will show, such as `#x.name`."""

    base: Condition
    name: str
    places: Mapping[str, int] = field(compare=False, hash=False)
    type: Type = ANY_VALUE


@dataclass(frozen=True, slots=True)
class IdOf:
    base: Condition
    type: Type = ID


@dataclass(frozen=True, slots=True)
class TypeOf:
    base: Condition
    type: Type = STRING


@dataclass(frozen=True, slots=True)
class TargetsOf:
    base: Condition
    type: Type = ANY_VALUE


@dataclass(frozen=True, slots=True)
class TypeIs:
    base: Condition
    names: frozenset[str]
    """The concrete types that make it true."""
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Not:
    operand: Condition
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Negate:
    operand: Condition
    type: Type


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Condition
    negated: bool
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Operation:
    op: str
    left: Condition
    right: Condition
    type: Type


@dataclass(frozen=True, slots=True)
class InList:
    item: Condition
    items: Condition
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class ListOf:
    items: tuple[Condition, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class FunctionCall:
    name: str
    """Lower-case."""
    arguments: tuple[Condition, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class ContextValue:
    """now(), wall_time(), logical_time(), current_actor(), current_session(), operation(), target() …"""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class ExistsIn:
    pattern: ResolvedPattern
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class PatternFold:
    """A pattern aggregate: `COUNT(p: Person, …)` or `COLLECT(p: Person, …)`, evaluated per row."""

    name: str
    pattern: ResolvedPattern
    slot: int
    limit: int | None
    type: Type = INT


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over the rows of a group; its result is put into register `slot` when the group is complete."""

    name: str
    """Upper-case."""
    operand: Condition | None
    distinct: bool
    where: Condition | None
    limit: int | None
    slot: int
    type: Type


Condition: TypeAlias = (
    Constant
    | Fixed
    | Slot
    | Reference
    | AttributeOf
    | DynamicAttribute
    | IdOf
    | TypeOf
    | TargetsOf
    | TypeIs
    | Not
    | Negate
    | IsNull
    | Operation
    | InList
    | ListOf
    | FunctionCall
    | ContextValue
    | ExistsIn
    | PatternFold
    | AggregateCall
)


# --- patterns ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeElement:
    """A variable and the types its element may have. `implicit`: only named as the target of an edge."""

    slot: int
    name: str
    types: tuple[str, ...]
    """Concrete types."""
    type: Type
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class EdgeElement:
    """One stored edge. A target is a register, an expression that yields an id, or None for a wildcard."""

    slot: int
    """Where the edge itself goes."""
    name: str | None
    edges: tuple[str, ...]
    """Edge types; several only for `edge<any>`."""
    targets: tuple[int | Condition | None, ...]
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class PathElement:
    """A transitive edge: from `source` to `target` in `low` to `high` steps."""

    edge: str
    source: int | Condition | None
    target: int | Condition | None
    source_types: tuple[str, ...]
    """Types that an unbound start ranges over."""
    loop_types: frozenset[str]
    """Types that fit both ends: those of an element that is joined to itself by a path of no edges."""
    low: int
    high: int
    symmetric: bool = False
    declared: bool = False
    """Whether the depth was written (a default depth that cuts a search short is worth a warning)."""


PatternElement: TypeAlias = NodeElement | EdgeElement | PathElement


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    elements: tuple[PatternElement, ...]
    where: tuple[Condition, ...] = ()
    """Conjuncts."""


def conjuncts(condition: Condition | None) -> tuple[Condition, ...]:
    """Split a condition at its top-level ANDs, left to right."""
    if condition is None:
        return ()
    if isinstance(condition, Operation) and condition.op == "AND":
        return conjuncts(condition.left) + conjuncts(condition.right)
    return (condition,)


def subexpressions(condition: Condition) -> Iterator[Condition]:
    """The condition and everything inside it, nested patterns included."""
    pending = [condition]
    while pending:
        item = pending.pop()
        yield item
        pending.extend(children(item))


_CHILDREN = frozenset(
    {"base", "operand", "left", "right", "item", "items", "arguments", "pattern", "where", "name"}
)


def children(condition: Condition) -> Iterator[Condition]:
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


def rebuild(condition: Condition, change: Callable[[Condition], Condition | None]) -> Condition:
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
            parts[f.name] = tuple(rebuild(part, change) for part in value)
        else:
            parts[f.name] = rebuild(value, change)
    return replace(condition, **parts) if parts else condition


def _element_expressions(element: PatternElement) -> tuple[Condition, ...]:
    match element:
        case EdgeElement():
            return tuple(t for t in element.targets if t is not None and not isinstance(t, int))
        case PathElement():
            return tuple(
                t for t in (element.source, element.target) if t is not None and not isinstance(t, int)
            )
    return ()


_UNCERTAIN = frozenset({"Any", "Union"})
_ORDER = frozenset({"<", "<=", ">", ">="})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "++"})
_PICKY = frozenset({"ceil", "floor", "replace", "round", "timestamp"})


def can_fail(condition: Condition) -> bool:
    """Whether evaluating it may raise: a division, a picky function, an operator over values of unknown types.

    Timestamps and durations that leave their range are not counted: nobody guards against that with AND.
    """
    return any(_raises(part) for part in subexpressions(condition))


def _raises(part: Condition) -> bool:
    match part:
        case Operation(op=op, left=left, right=right):
            kinds = {left.type.kind, right.type.kind}
            if op in ("/", "%"):
                return right.type.kind != "Float" or bool(kinds & _UNCERTAIN)
            return op in _ORDER | _ARITHMETIC and bool(kinds & _UNCERTAIN)
        case Negate(operand=operand):
            return operand.type.kind in _UNCERTAIN
        case FunctionCall(name=name, arguments=arguments):
            return name in _PICKY or any(argument.type.kind in _UNCERTAIN for argument in arguments)
    return False


def slots_of(condition: Condition) -> frozenset[int]:
    """Registers of the surrounding pattern that the condition reads; those that nested patterns bind do not count."""
    found: set[int] = set()
    bound: set[int] = set()
    for item in subexpressions(condition):
        if isinstance(item, Slot):
            found.add(item.slot)
        elif isinstance(item, (ExistsIn, PatternFold)):
            for element in item.pattern.elements:
                found.update(_target_slots(element))
                if isinstance(element, (NodeElement, EdgeElement)):
                    bound.add(element.slot)
    return frozenset(found - bound)


def _target_slots(element: PatternElement) -> tuple[int, ...]:
    match element:
        case EdgeElement():
            return tuple(t for t in element.targets if isinstance(t, int))
        case PathElement():
            return tuple(t for t in (element.source, element.target) if isinstance(t, int))
    return ()
