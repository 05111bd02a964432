"""WATCH ▸ a resolved pattern whose constants stand outside.

What belongs to one watch and not to its shape becomes a constant: literals and parameters, but also `#names`, `#self`,
current_actor() and current_session(), captured when the watch is created (spec/watch.md B36). A constant target of an
edge, `inbox(#self, m)`, becomes a hidden variable with the condition that it is that element: a key to find watches by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import QUERY, Frame, Place, Scope
from vedette.language.resolve.tree import (
    Condition,
    Constant,
    EdgeElement,
    IdOf,
    NodeElement,
    Operation,
    PathElement,
    ResolvedPattern,
    Slot,
)
from vedette.language.resolve.types import concrete_types
from vedette.language.syntax import expressions as syntax
from vedette.language.types import BOOL, ID, Type, node_type

__all__ = ["Capture", "WatchResolver", "without_hidden"]

_CAPTURED = frozenset({"current_actor", "current_session", "self"})


@dataclass(frozen=True, slots=True)
class Capture:
    """A value taken from the session when a watch is created: `reference` with its name, else a context function."""

    kind: str
    name: str = ""
    quoted: bool = False


class WatchResolver(PatternResolver):
    """Resolves the pattern, conditions and projections of one WATCH into one frame."""

    def __init__(self, frame: Frame, place: Place = QUERY) -> None:
        super().__init__(frame, place)
        self.captures: list[Capture] = []
        self.keys: list[Condition] = []
        """Conditions that bind hidden variables to constants."""
        self._outermost = True
        """Until the watch's own pattern begins; whatever is resolved after it is nested in RETURN or an option."""
        self._at_top = False

    def pattern(
        self, pattern: syntax.Pattern, where: syntax.Expression | None, scope: Scope
    ) -> resolved.ResolvedPattern:
        outermost, self._outermost = self._outermost, False
        around, self._at_top = self._at_top, outermost
        try:
            return super().pattern(pattern, where, scope)
        finally:
            self._at_top = around

    def _captured(self, capture: Capture, type_: Type) -> Constant:
        if capture not in self.captures:
            self.captures.append(capture)
        return Constant(len(self.frame.constants) + self.captures.index(capture), type_)

    def _reference(self, reference: syntax.IdReference, scope: Scope) -> Condition:
        found = super()._reference(reference, scope)
        if isinstance(found, resolved.Reference):
            if isinstance(found.name, Constant):
                return Constant(found.name.index, ID)
            return self._captured(Capture("reference", found.name, found.quoted), ID)
        if isinstance(found, resolved.ContextValue):
            return self._captured(Capture(found.name), node_type())
        return found

    def _context(self, name: str, call: syntax.Call) -> Condition:
        found = super()._context(name, call)
        if isinstance(found, resolved.ContextValue) and found.name in _CAPTURED:
            return self._captured(Capture(found.name), found.type)
        return found

    def _target(
        self, target: syntax.Target, type_: Type, scope: Scope, into: list[resolved.PatternElement]
    ) -> int | Condition | None:
        found = super()._target(target, type_, scope, into)
        if not isinstance(found, Constant) or not self._at_top:
            return found
        slot = self.frame.register()
        hidden = Slot(slot, f"${slot}", type_)
        into.append(NodeElement(slot, hidden.name, concrete_types(self.frame, type_), type_, implicit=True))
        self.keys.append(Operation("=", IdOf(hidden), found, BOOL))
        return slot


def without_hidden(pattern: ResolvedPattern) -> ResolvedPattern:
    """The pattern as it was written: constants stand as targets again. So MATCH would look for it, and judge it."""
    constants: dict[int, Condition] = {}
    where = []
    for condition in pattern.where:
        match condition:
            case Operation(left=IdOf(base=Slot(slot=slot, name=name)), right=constant) if name[0] == "$":
                constants[slot] = constant
            case _:
                where.append(condition)

    def plain(target: int | Condition | None) -> int | Condition | None:
        return constants.get(target, target) if isinstance(target, int) else target

    elements: list[resolved.PatternElement] = []
    for element in pattern.elements:
        match element:
            case EdgeElement():
                elements.append(replace(element, targets=tuple(map(plain, element.targets))))
            case PathElement():
                elements.append(replace(element, source=plain(element.source), target=plain(element.target)))
            case NodeElement() if element.slot not in constants:
                elements.append(element)
    return ResolvedPattern(tuple(elements), tuple(where))
