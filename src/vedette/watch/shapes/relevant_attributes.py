"""Determines which attributes of the pattern's elements a watch reads. Changes of others cannot affect it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import child_expressions
from vedette.language.resolve.tree import ResolvedExpression, ResolvedPattern

__all__ = ["RelevantAttributes", "relevant_attributes"]

RelevantAttributes = Mapping[int, Mapping[str, frozenset[int]] | None]
"""Register of an element ▸ type ▸ positions of the attributes that are read; None: the whole element."""

_IMMUTABLE_PROPERTIES: Final = (resolved.IdOf, resolved.TypeOf, resolved.TargetsOf, resolved.TypeIs)
"""Properties that never change during the life of an element."""


def relevant_attributes(
    pattern: ResolvedPattern, conditions: Iterable[ResolvedExpression]
) -> RelevantAttributes | None:
    """What the conditions read of the pattern's elements; None if nested patterns prevent the analysis."""
    found: dict[int, dict[str, set[int]] | None] = {
        element.register: {}
        for element in pattern.elements
        if isinstance(element, (resolved.ResolvedNode, resolved.ResolvedEdge))
    }
    pending = [*pattern.where, *child_expressions(resolved.ResolvedExists(pattern)), *conditions]
    while pending:
        part = pending.pop()
        base = getattr(part, "base", None)
        if isinstance(part, (resolved.ResolvedExists, resolved.ResolvedPatternAggregate)):
            return None
        if isinstance(part, resolved.VariableRef):
            found[part.register] = None
        elif isinstance(part, _IMMUTABLE_PROPERTIES) and isinstance(base, resolved.VariableRef):
            continue
        elif isinstance(part, (resolved.AttributeAccess, resolved.DynamicAttributeAccess)) and isinstance(
            base, resolved.VariableRef
        ):
            known = found.setdefault(base.register, {})
            if known is not None:
                for name, position in part.index_by_type.items():
                    known.setdefault(name, set()).add(position)
        else:
            pending.extend(child_expressions(part))
    return {slot: _frozen(places) for slot, places in found.items()}


def _frozen(places: Mapping[str, set[int]] | None) -> Mapping[str, frozenset[int]] | None:
    return None if places is None else {name: frozenset(held) for name, held in places.items()}
