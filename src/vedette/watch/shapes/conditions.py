"""What becomes of the conditions of a watch: shared with all of its shape, a key, a range, or tested for each.

A condition without constants is the same for every watch of a shape and is tested once. One that compares something
with a constant makes a key or a range to find watches by. The rest, the residual, is tested watch by watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.queries import ResolvedReturn
from vedette.language.resolve.tree import Condition, Constant, Operation, ResolvedPattern, can_fail

__all__ = [
    "ends_anywhere",
    "evaluated",
    "is_open",
    "prunes",
    "split",
    "tells_time",
    "without_constants",
]

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_HASHABLE = frozenset({"String", "Int", "Float", "Bool", "Timestamp", "Duration", "ID", "Node", "Edge"})
_RANGED = frozenset({"String", "Int", "Float", "Timestamp", "Duration"})
_TIME = frozenset({"now", "wall_time", "logical_time"})


def evaluated(
    returns: ResolvedReturn | None, order: Sequence[tuple[Condition, bool]]
) -> tuple[Condition, ...]:
    """Whatever a watch computes from a match: projections, inputs of aggregates, what it is ordered by."""
    projections = returns.projections if returns is not None else ()
    calls = returns.aggregates if returns is not None else ()
    inputs = tuple(part for call in calls for part in (call.operand, call.where) if part is not None)
    return (*projections, *(condition for condition, _ in order), *inputs)


def ends_anywhere(element: resolved.PatternElement) -> bool:
    """A path with a wildcard end yields a row for each such end, which no variable tells apart."""
    return isinstance(element, resolved.PathElement) and None in (element.source, element.target)


def split(
    opened: Sequence[Condition], shared: Sequence[Condition]
) -> tuple[list[tuple[Condition, int]], tuple[Condition, str, int] | None, list[Condition]]:
    """Sort conditions with constants into keys, at most one range, and the rest.

    Only the `shared` ones may be keys: their other side must have one value, whoever is asking.
    """
    keys: list[tuple[Condition, int]] = []
    ranged: tuple[Condition, str, int] | None = None
    residual: list[Condition] = []
    for condition in opened:
        sides = _sides(condition)
        if sides is None or condition not in shared:
            residual.append(condition)
            continue
        side, op, constant = sides
        if op == "=" and _same(side, constant, _HASHABLE):
            keys.append((side, constant.index))
        elif op in _FLIPPED and ranged is None and _same(side, constant, _RANGED):
            ranged = (side, op, constant.index)
        else:
            residual.append(condition)
    return keys, ranged, residual


def _reads(condition: Condition, attributes: frozenset[str]) -> bool:
    parts = resolved.subexpressions(condition)
    return any(
        isinstance(p, (resolved.AttributeOf, resolved.DynamicAttribute)) and p.name in attributes
        for p in parts
    )


def prunes(condition: Condition, guarded: bool, masked: frozenset[str]) -> bool:
    """Whether a condition that fails on the graph as it is also fails for every actor, who may see less of it.

    What may raise is left for last and for each watch alone: conditions before it may guard against that.
    """
    if can_fail(condition):
        return False
    if not guarded:
        return True
    return not _reads(condition, masked) and not any(map(_looks_further, resolved.subexpressions(condition)))


def _looks_further(part: Condition) -> bool:
    """Whether it looks at elements that the pattern does not bind: nested patterns, followed references."""
    if isinstance(part, (resolved.ExistsIn, resolved.PatternFold)):
        return True
    base = getattr(part, "base", None)
    return base is not None and not isinstance(base, resolved.Slot)


def _sides(condition: Condition) -> tuple[Condition, str, Constant] | None:
    if not isinstance(condition, Operation):
        return None
    if isinstance(condition.right, Constant) and not is_open(condition.left):
        return condition.left, condition.op, condition.right
    if isinstance(condition.left, Constant) and not is_open(condition.right):
        return condition.right, _FLIPPED.get(condition.op, condition.op), condition.left
    return None


def _same(side: Condition, constant: Constant, kinds: frozenset[str]) -> bool:
    left, right = side.type, constant.type
    if left.kind not in kinds or right.kind not in kinds:
        return False
    references = left.is_reference or left.kind == "ID"
    return references or left.kind == right.kind or (left.is_numeric and right.is_numeric)


def is_open(condition: Condition) -> bool:
    return any(isinstance(part, Constant) for part in resolved.subexpressions(condition))


def tells_time(condition: Condition) -> bool:
    return any(
        isinstance(part, resolved.ContextValue) and part.name in _TIME
        for part in resolved.subexpressions(condition)
    )


def without_constants(condition: Condition) -> Condition:
    """The condition with constant targets of nested edges made wildcards: only its structure is of interest."""

    def change(part: Condition) -> Condition | None:
        if isinstance(part, (resolved.ExistsIn, resolved.PatternFold)):
            return replace(part, pattern=_open_targets(part.pattern))
        return None

    return resolved.rebuild(condition, change)


def _open_targets(pattern: ResolvedPattern) -> ResolvedPattern:
    elements: list[resolved.PatternElement] = []
    for element in pattern.elements:
        if isinstance(element, resolved.EdgeElement):
            elements.append(replace(element, targets=tuple(_open_target(t) for t in element.targets)))
        elif isinstance(element, resolved.PathElement):
            source, target = _open_target(element.source), _open_target(element.target)
            elements.append(replace(element, source=source, target=target))
        else:
            elements.append(element)
    return ResolvedPattern(tuple(elements), tuple(without_constants(c) for c in pattern.where))


def _open_target(target: int | Condition | None) -> int | Condition | None:
    return None if target is None or (not isinstance(target, int) and is_open(target)) else target
