"""Resolves a WATCH to a pattern with numbered constants.

Everything that belongs to one watch and not to its shape becomes a constant: literals and parameters, but also
`#names`, `#self`, current_actor() and current_session(), captured when the watch is created. A constant edge
target, `inbox(#self, m)`, becomes a hidden variable with an equality condition, which serves as a key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vedette.language.functions.registry import Function
from vedette.language.resolve import tree as resolved
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import QUERY_SITE, AnalysisContext, ExpressionSite, Scope
from vedette.language.resolve.tree import (
    BinaryOperation,
    ConstantRef,
    IdOf,
    ResolvedEdge,
    ResolvedExpression,
    ResolvedNode,
    ResolvedPath,
    ResolvedPattern,
    VariableRef,
)
from vedette.language.resolve.types import concrete_types
from vedette.language.syntax import expressions as syntax
from vedette.language.types import BOOL, ID, Type, node_type

__all__ = ["SessionValue", "WatchResolver", "restore_constant_targets"]

_SESSION_FUNCTIONS = frozenset({"current_actor", "current_session", "self"})


@dataclass(frozen=True, slots=True)
class SessionValue:
    """A value captured from the session on creation: `reference` with its name, or a context function."""

    kind: str
    name: str = ""
    quoted: bool = False


class WatchResolver(PatternResolver):
    """Resolves the pattern, conditions and projections of one WATCH in one frame."""

    def __init__(self, analysis: AnalysisContext, place: ExpressionSite = QUERY_SITE) -> None:
        super().__init__(analysis, place)
        self.session_values: list[SessionValue] = []
        self.target_conditions: list[ResolvedExpression] = []
        """Conditions that bind hidden variables to constants."""
        self._before_top_pattern = True
        """True until the watch's own pattern is reached. Patterns after it are nested in RETURN or an option."""
        self._in_top_pattern = False

    def resolve_pattern(
        self, pattern: syntax.Pattern, where: syntax.Expression | None, scope: Scope
    ) -> resolved.ResolvedPattern:
        outermost, self._before_top_pattern = self._before_top_pattern, False
        around, self._in_top_pattern = self._in_top_pattern, outermost
        try:
            return super().resolve_pattern(pattern, where, scope)
        finally:
            self._in_top_pattern = around

    def _capture(self, capture: SessionValue, type_: Type) -> ConstantRef:
        if capture not in self.session_values:
            self.session_values.append(capture)
        return ConstantRef(len(self.analysis.constant_types) + self.session_values.index(capture), type_)

    def resolve_id_reference(self, reference: syntax.IdReference, scope: Scope) -> ResolvedExpression:
        found = super().resolve_id_reference(reference, scope)
        if isinstance(found, resolved.ElementReference):
            if isinstance(found.name, ConstantRef):
                return ConstantRef(found.name.index, ID)
            return self._capture(SessionValue("reference", found.name, found.quoted), ID)
        if isinstance(found, resolved.ContextFunction):
            return self._capture(SessionValue(found.name), node_type())
        return found

    def resolve_context_function(self, function: Function, call: syntax.Call) -> ResolvedExpression:
        found = super().resolve_context_function(function, call)
        if isinstance(found, resolved.ContextFunction) and found.name in _SESSION_FUNCTIONS:
            return self._capture(SessionValue(found.name), found.type)
        return found

    def resolve_edge_target(
        self, target: syntax.EdgeTarget, type_: Type, scope: Scope, into: list[resolved.ResolvedPart]
    ) -> int | ResolvedExpression | None:
        found = super().resolve_edge_target(target, type_, scope, into)
        if not isinstance(found, ConstantRef) or not self._in_top_pattern:
            return found
        slot = self.analysis.allocate_register()
        hidden = VariableRef(slot, f"${slot}", type_)
        into.append(
            ResolvedNode(slot, hidden.name, concrete_types(self.analysis, type_), type_, implicit=True)
        )
        self.target_conditions.append(BinaryOperation("=", IdOf(hidden), found, BOOL))
        return slot


def restore_constant_targets(pattern: ResolvedPattern) -> ResolvedPattern:
    """The pattern as written, with constants as edge targets again: what MATCH evaluates and policies check."""
    constants: dict[int, ResolvedExpression] = {}
    where = []
    for condition in pattern.where:
        match condition:
            case BinaryOperation(left=IdOf(base=VariableRef(register=slot, name=name)), right=constant) if (
                name[0] == "$"
            ):
                constants[slot] = constant
            case _:
                where.append(condition)

    def plain(target: int | ResolvedExpression | None) -> int | ResolvedExpression | None:
        return constants.get(target, target) if isinstance(target, int) else target

    elements: list[resolved.ResolvedPart] = []
    for element in pattern.elements:
        match element:
            case ResolvedEdge():
                elements.append(replace(element, targets=tuple(map(plain, element.targets))))
            case ResolvedPath():
                elements.append(replace(element, source=plain(element.source), target=plain(element.target)))
            case ResolvedNode() if element.register not in constants:
                elements.append(element)
    return ResolvedPattern(tuple(elements), tuple(where))
