"""Classifies the conditions of a watch: shared by the shape, key, range, or residual.

A condition without constants is equal for every watch of a shape and is tested once. A comparison with a constant
becomes a key or a range by which watches are found. All other conditions are residual: tested per watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import can_raise, transform_expression, walk_expression
from vedette.language.resolve.queries import ResolvedReturn
from vedette.language.resolve.tree import BinaryOperation, ConstantRef, ResolvedExpression, ResolvedPattern

__all__ = [
    "can_be_shared",
    "classify_conditions",
    "computed_expressions",
    "depends_on_time",
    "has_wildcard_end",
    "mentions_constant",
    "with_wildcard_targets",
]

_MIRRORED_OPERATORS = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_KEY_TYPES = frozenset({"String", "Int", "Float", "Bool", "Timestamp", "Duration", "ID", "Node", "Edge"})
_RANGE_TYPES = frozenset({"String", "Int", "Float", "Timestamp", "Duration"})
_TIME = frozenset({"now", "wall_time", "logical_time"})


def computed_expressions(
    returns: ResolvedReturn | None, order: Sequence[tuple[ResolvedExpression, bool]]
) -> tuple[ResolvedExpression, ...]:
    """All expressions a watch computes from a match: projections, aggregate inputs, order terms."""
    projections = returns.projections if returns is not None else ()
    calls = returns.aggregates if returns is not None else ()
    inputs = tuple(part for call in calls for part in (call.operand, call.where) if part is not None)
    return (*projections, *(condition for condition, _ in order), *inputs)


def has_wildcard_end(element: resolved.ResolvedPart) -> bool:
    """True for a path with a wildcard end: it yields one row per end, and no variable distinguishes them."""
    return isinstance(element, resolved.ResolvedPath) and None in (element.source, element.target)


def classify_conditions(
    opened: Sequence[ResolvedExpression], shared: Sequence[ResolvedExpression]
) -> tuple[
    list[tuple[ResolvedExpression, int]], tuple[ResolvedExpression, str, int] | None, list[ResolvedExpression]
]:
    """Sort conditions with constants into keys, at most one range, and residual conditions.

    Only `shared` conditions can be keys: their other side must have the same value for every actor.
    """
    keys: list[tuple[ResolvedExpression, int]] = []
    ranged: tuple[ResolvedExpression, str, int] | None = None
    residual: list[ResolvedExpression] = []
    for condition in opened:
        sides = _comparison_with_constant(condition)
        if sides is None or condition not in shared:
            residual.append(condition)
            continue
        side, op, constant = sides
        if op == "=" and _has_comparable_types(side, constant, _KEY_TYPES):
            keys.append((side, constant.index))
        elif (
            op in _MIRRORED_OPERATORS
            and ranged is None
            and _has_comparable_types(side, constant, _RANGE_TYPES)
        ):
            ranged = (side, op, constant.index)
        else:
            residual.append(condition)
    return keys, ranged, residual


def _reads(condition: ResolvedExpression, attributes: frozenset[str]) -> bool:
    parts = walk_expression(condition)
    return any(
        isinstance(p, (resolved.AttributeAccess, resolved.DynamicAttributeAccess)) and p.name in attributes
        for p in parts
    )


def can_be_shared(condition: ResolvedExpression, guarded: bool, masked: frozenset[str]) -> bool:
    """True if a condition that fails on the whole graph also fails for every actor, who may see less.

    A condition that may raise is never shared: it is tested last and per watch, because others may guard it.
    """
    if can_raise(condition):
        return False
    if not guarded:
        return True
    return not _reads(condition, masked) and not any(map(reads_unbound_elements, walk_expression(condition)))


def reads_unbound_elements(part: ResolvedExpression) -> bool:
    """True if it reads elements that the pattern does not bind: nested patterns, followed references."""
    if isinstance(part, (resolved.ResolvedExists, resolved.ResolvedPatternAggregate)):
        return True
    base = getattr(part, "base", None)
    return base is not None and not isinstance(base, resolved.VariableRef)


def _comparison_with_constant(
    condition: ResolvedExpression,
) -> tuple[ResolvedExpression, str, ConstantRef] | None:
    if not isinstance(condition, BinaryOperation):
        return None
    if isinstance(condition.right, ConstantRef) and not mentions_constant(condition.left):
        return condition.left, condition.op, condition.right
    if isinstance(condition.left, ConstantRef) and not mentions_constant(condition.right):
        return condition.right, _MIRRORED_OPERATORS.get(condition.op, condition.op), condition.left
    return None


def _has_comparable_types(side: ResolvedExpression, constant: ConstantRef, kinds: frozenset[str]) -> bool:
    left, right = side.type, constant.type
    if left.kind not in kinds or right.kind not in kinds:
        return False
    references = left.is_reference or left.kind == "ID"
    return references or left.kind == right.kind or (left.is_numeric and right.is_numeric)


def mentions_constant(condition: ResolvedExpression) -> bool:
    return any(isinstance(part, ConstantRef) for part in walk_expression(condition))


def depends_on_time(condition: ResolvedExpression) -> bool:
    return any(
        isinstance(part, resolved.ContextFunction) and part.name in _TIME
        for part in walk_expression(condition)
    )


def with_wildcard_targets(condition: ResolvedExpression) -> ResolvedExpression:
    """The condition with constant targets of nested edges replaced by wildcards."""

    def change(part: ResolvedExpression) -> ResolvedExpression | None:
        if isinstance(part, (resolved.ResolvedExists, resolved.ResolvedPatternAggregate)):
            return replace(part, pattern=_open_targets(part.pattern))
        return None

    return transform_expression(condition, change)


def _open_targets(pattern: ResolvedPattern) -> ResolvedPattern:
    elements: list[resolved.ResolvedPart] = []
    for element in pattern.elements:
        if isinstance(element, resolved.ResolvedEdge):
            elements.append(replace(element, targets=tuple(_open_target(t) for t in element.targets)))
        elif isinstance(element, resolved.ResolvedPath):
            source, target = _open_target(element.source), _open_target(element.target)
            elements.append(replace(element, source=source, target=target))
        else:
            elements.append(element)
    return ResolvedPattern(tuple(elements), tuple(with_wildcard_targets(c) for c in pattern.where))


def _open_target(target: int | ResolvedExpression | None) -> int | ResolvedExpression | None:
    return None if target is None or (not isinstance(target, int) and mentions_constant(target)) else target
