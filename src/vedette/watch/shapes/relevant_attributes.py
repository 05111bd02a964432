"""Which attributes of a pattern's elements a watch looks at: a change of any other means nothing to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.tree import Condition, ResolvedPattern

__all__ = ["Attention", "attention"]

Attention = Mapping[int, Mapping[str, frozenset[int]] | None]
"""Register of an element ▸ type ▸ places of the attributes that are looked at; None: the element as a whole."""

_ENDURING: Final = (resolved.IdOf, resolved.TypeOf, resolved.TargetsOf, resolved.TypeIs)
"""What an element keeps as long as it is there."""


def attention(pattern: ResolvedPattern, conditions: Iterable[Condition]) -> Attention | None:
    """What the conditions look at in the pattern's elements; None when nested patterns make that hard to say."""
    found: dict[int, dict[str, set[int]] | None] = {
        element.slot: {}
        for element in pattern.elements
        if isinstance(element, (resolved.NodeElement, resolved.EdgeElement))
    }
    pending = [*pattern.where, *resolved.children(resolved.ExistsIn(pattern)), *conditions]
    while pending:
        part = pending.pop()
        base = getattr(part, "base", None)
        if isinstance(part, (resolved.ExistsIn, resolved.PatternFold)):
            return None
        if isinstance(part, resolved.Slot):
            found[part.slot] = None
        elif isinstance(part, _ENDURING) and isinstance(base, resolved.Slot):
            continue
        elif isinstance(part, (resolved.AttributeOf, resolved.DynamicAttribute)) and isinstance(
            base, resolved.Slot
        ):
            known = found.setdefault(base.slot, {})
            if known is not None:
                for name, place in part.places.items():
                    known.setdefault(name, set()).add(place)
        else:
            pending.extend(resolved.children(part))
    return {slot: _frozen(places) for slot, places in found.items()}


def _frozen(places: Mapping[str, set[int]] | None) -> Mapping[str, frozenset[int]] | None:
    return None if places is None else {name: frozenset(held) for name, held in places.items()}
