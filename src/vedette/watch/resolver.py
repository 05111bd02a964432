"""WATCH ▸ a resolved pattern whose constants stand outside.

What belongs to one watch and not to its shape becomes a constant: literals and parameters, but also `#names`, `#self`,
current_actor() and current_session(), captured when the watch is created (spec/watch.md B36). A constant target of an
edge, `inbox(#self, m)`, becomes a hidden variable with the condition that it is that element: a key to find watches by.
A wildcard end of a path becomes a hidden variable named `_`, which is no part of a match's identity.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedette.language import resolved, syntax
from vedette.language.resolve_patterns import PatternResolver
from vedette.language.resolve_types import concrete_types
from vedette.language.resolved import Condition, Constant, IdOf, NodeElement, Operation, Slot
from vedette.language.schema import EdgeType
from vedette.language.scope import QUERY, Frame, Place, Scope
from vedette.language.types import BOOL, ID, Type, node_type

__all__ = ["Capture", "WatchResolver"]

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
        self._hide(slot, f"${slot}", type_, into)
        self.keys.append(Operation("=", IdOf(Slot(slot, f"${slot}", type_)), found, BOOL))
        return slot

    def _path(
        self,
        element: syntax.EdgePattern,
        edge: EdgeType | None,
        targets: tuple[int | Condition | None, ...],
        into: list[resolved.PatternElement],
    ) -> None:
        """A path counts once for each pair of ends: an end that nobody named is part of the row all the same."""
        if edge is not None and edge.arity == len(targets) and self._at_top:
            ends = []
            for parameter, target in zip(edge.parameters, targets, strict=True):
                slot = self.frame.register() if target is None else target
                if target is None and isinstance(slot, int):
                    self._hide(slot, "_", parameter.type, into)
                ends.append(slot)
            targets = tuple(ends)
        super()._path(element, edge, targets, into)

    def _hide(self, slot: int, name: str, type_: Type, into: list[resolved.PatternElement]) -> None:
        into.append(NodeElement(slot, name, concrete_types(self.frame, type_), type_, implicit=True))
