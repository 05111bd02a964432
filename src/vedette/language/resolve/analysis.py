"""Questions about resolved expressions: their parts, the registers that they read, whether they can raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from vedette.language.resolve.tree import (
    BinaryOperation,
    FunctionCall,
    Negate,
    ResolvedEdge,
    ResolvedExists,
    ResolvedExpression,
    ResolvedNode,
    ResolvedPart,
    ResolvedPath,
    ResolvedPattern,
    ResolvedPatternAggregate,
    VariableRef,
)

__all__ = [
    "can_raise",
    "child_expressions",
    "registers_read",
    "split_conjuncts",
    "transform_expression",
    "walk_expression",
]


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
                found.update(_target_registers(element))
                if isinstance(element, (ResolvedNode, ResolvedEdge)):
                    bound.add(element.register)
    return frozenset(found - bound)


def _target_registers(element: ResolvedPart) -> tuple[int, ...]:
    match element:
        case ResolvedEdge():
            return tuple(t for t in element.targets if isinstance(t, int))
        case ResolvedPath():
            return tuple(t for t in (element.source, element.target) if isinstance(t, int))
    return ()
