"""Questions about resolved expressions: their parts, the registers that they read, whether they can raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
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
from vedette.language.syntax.visit import field_names

__all__ = [
    "can_raise",
    "child_expressions",
    "registers_read",
    "split_conjuncts",
    "transform_expression",
    "walk_expression",
]


def split_conjuncts(expression: ResolvedExpression | None) -> tuple[ResolvedExpression, ...]:
    """Split a condition at its top-level ANDs, left to right."""
    if expression is None:
        return ()
    if isinstance(expression, BinaryOperation) and expression.op == "AND":
        return split_conjuncts(expression.left) + split_conjuncts(expression.right)
    return (expression,)


def walk_expression(expression: ResolvedExpression) -> Iterator[ResolvedExpression]:
    """Yield the expression and all expressions inside it, those of nested patterns included."""
    pending = [expression]
    while pending:
        item = pending.pop()
        yield item
        pending.extend(child_expressions(item))


_CHILDREN = frozenset(
    {"base", "operand", "left", "right", "item", "items", "arguments", "pattern", "where", "name"}
)
"""Fields that may contain expressions. `name` does in `#$p`, where it is a ConstantRef."""


_CHILD_FIELDS: dict[type, tuple[str, ...]] = {}
"""By node class."""


def _child_fields(kind: type) -> tuple[str, ...]:
    names = _CHILD_FIELDS.get(kind)
    if names is None:
        names = _CHILD_FIELDS[kind] = tuple(name for name in field_names(kind) if name in _CHILDREN)
    return names


def child_expressions(expression: ResolvedExpression) -> Iterator[ResolvedExpression]:
    """Yield the expressions directly inside this one; for a nested pattern, its conditions and target expressions."""
    for part in [getattr(expression, name) for name in _child_fields(type(expression))]:
        if isinstance(part, ResolvedPattern):
            yield from part.where
            for element in part.elements:
                yield from _element_expressions(element)
        elif isinstance(part, tuple):
            yield from part
        elif part is not None and not isinstance(part, str):
            yield part


def transform_expression(
    expression: ResolvedExpression, change: Callable[[ResolvedExpression], ResolvedExpression | None]
) -> ResolvedExpression:
    """Return the expression with parts replaced, from the root down.

    `change` returns the replacement of a part, or None to keep the part and visit its children. Nested patterns are not
    visited.
    """
    changed = change(expression)
    if changed is not None:
        return changed
    parts: dict[str, Any] = {}
    for name in _child_fields(type(expression)):
        value = getattr(expression, name)
        if value is None or isinstance(value, (str, ResolvedPattern)):
            continue
        if isinstance(value, tuple):
            parts[name] = tuple(transform_expression(part, change) for part in value)
        else:
            parts[name] = transform_expression(value, change)
    return replace(expression, **parts) if parts else expression


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


def can_raise(expression: ResolvedExpression) -> bool:
    """True if evaluation may raise: a division, certain functions, an operator on values of unknown type.

    The planner keeps such conditions in their written order, so that AND can guard them. Timestamps and durations out
    of range are not counted, because statements do not guard against them.
    """
    return any(_raises(part) for part in walk_expression(expression))


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


def registers_read(expression: ResolvedExpression) -> frozenset[int]:
    """Return the registers that the expression reads, without those that its nested patterns bind."""
    found: set[int] = set()
    bound: set[int] = set()
    for item in walk_expression(expression):
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
