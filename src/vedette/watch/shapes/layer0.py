"""Layer 0 in watches: whether a watch reads it, and which changes are incremental.

The counters of a watch change with every event. They are included in published rows but are not changes themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import walk_expression
from vedette.language.resolve.tree import (
    ResolvedEdge,
    ResolvedExpression,
    ResolvedNode,
    ResolvedPart,
    ResolvedPattern,
)

__all__ = [
    "INCREMENTAL_TYPES",
    "VOLATILE_ATTRIBUTES",
    "counter_columns",
    "is_incremental",
    "reads_layer0",
    "without_counters",
]

VOLATILE_ATTRIBUTES = frozenset({"events_delivered", "events_pending", "last_event_at"})
"""Attributes of `_Watch` that change with every event."""
INCREMENTAL_TYPES = frozenset({"_Watch", "_Session", "_session_has_watch"})
"""Layer 0 types whose changes are evaluated one by one. Watches over other types are re-evaluated."""


def reads_layer0(pattern: ResolvedPattern, conditions: Iterable[ResolvedExpression]) -> bool:
    return any(map(_is_layer0, _elements(pattern, conditions)))


def _elements(pattern: ResolvedPattern, conditions: Iterable[ResolvedExpression]) -> Iterator[ResolvedPart]:
    """The elements of the pattern and of all patterns nested in the conditions."""
    yield from pattern.elements
    for condition in conditions:
        for part in walk_expression(condition):
            if isinstance(part, (resolved.ResolvedExists, resolved.ResolvedPatternAggregate)):
                yield from part.pattern.elements


def _is_layer0(element: ResolvedPart) -> bool:
    if isinstance(element, ResolvedNode):
        names = element.types
    else:
        names = element.edge_types if isinstance(element, ResolvedEdge) else (element.edge,)
    return bool(names) and all(name.startswith("_") for name in names)


def is_incremental(
    elements: Iterable[str],
    tested: Iterable[ResolvedExpression],
    counted: Iterable[ResolvedExpression],
) -> bool:
    """True if changes of single watches and sessions determine the result.

    `elements` are the types that are read, `tested` are conditions and order terms, `counted` is what is stored and
    compared later. Counters change without notice, so nothing that depends on them may be stored. Visibility is
    checked for the elements of the pattern only, so nested patterns are not incremental either.
    """
    if not INCREMENTAL_TYPES.issuperset(elements):
        return False
    if any(isinstance(condition, resolved.VariableRef) for condition in counted):
        return False
    parts = (part for condition in (*tested, *counted) for part in walk_expression(condition))
    return not any(
        _reads_unbound_elements(part) or getattr(part, "name", None) in VOLATILE_ATTRIBUTES for part in parts
    )


def _reads_unbound_elements(part: ResolvedExpression) -> bool:
    base = getattr(part, "base", None)
    nested = isinstance(part, (resolved.ResolvedExists, resolved.ResolvedPatternAggregate))
    return nested or (base is not None and not isinstance(base, resolved.VariableRef))


def counter_columns(columns: Sequence[str], projections: Sequence[ResolvedExpression]) -> frozenset[str]:
    """Names of the columns that are counters."""
    return frozenset(
        name
        for name, projection in zip(columns, projections, strict=True)
        if isinstance(projection, resolved.AttributeAccess)
        and projection.name in VOLATILE_ATTRIBUTES
        and "_Watch" in projection.index_by_type
    )


def without_counters(row: dict[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    """The row without counter columns, and without counters in images of watches."""
    return {name: _plain(value) for name, value in row.items() if name not in columns}


def _plain(value: Any) -> Any:
    if not isinstance(value, dict) or value.get("_type") != "_Watch":
        return value
    return {name: each for name, each in value.items() if name not in VOLATILE_ATTRIBUTES}
