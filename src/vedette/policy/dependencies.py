"""What an actor's view of a pattern depends on: whatever policies look at when they judge what the pattern looks at.

A policy about an element that the pattern binds is followed like a condition on that element. Some elements are judged
though nothing is bound to them (a wildcard target, the middle of a path, what a reference leads to): changes of what
their policies look at may concern any match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import Scope
from vedette.language.resolve.tree import (
    Condition,
    EdgeElement,
    ExistsIn,
    NodeElement,
    PathElement,
    PatternFold,
    ResolvedPattern,
    Slot,
)
from vedette.language.resolve.types import concrete_types, resolve_type
from vedette.language.syntax.declarations import OperationPattern, PolicyDeclaration
from vedette.language.types import Type, node_type
from vedette.policy.decisions import PLACE, named_types, variable_of
from vedette.policy.operation_targets import graph_side

__all__ = ["SightDependencies", "mentioned_types"]


class SightDependencies:
    """Collects, for one watch, the conditions to follow and the types whose changes may concern any match."""

    def __init__(self, resolver: PatternResolver, policies: Iterable[PolicyDeclaration]) -> None:
        self._resolver = resolver
        self._schema = resolver.frame.schema
        self._reading = [
            (policy, operation)
            for policy in policies
            for written in policy.operations
            if written.operation in ("*", "MATCH")
            and (operation := graph_side(written, self._schema)) is not None
        ]
        self.conditions: list[Condition] = []
        self.wide: set[str] = set()

    def collect(self, pattern: ResolvedPattern, conditions: Sequence[Condition]) -> None:
        """Take in a watch's pattern and whatever else it evaluates over its variables."""
        self.conditions += self._about(pattern.elements)
        for condition in (*pattern.where, *conditions):
            if any(isinstance(p, (ExistsIn, PatternFold)) for p in resolved.subexpressions(condition)):
                self.conditions.append(self._seen(condition))
            self._judged_unbound(self._followed(condition))

    # --- elements that are bound ------------------------------------------------------------------------------

    def _about(self, elements: Sequence[resolved.PatternElement]) -> list[Condition]:
        """The conditions under which policies show these elements, with their variable standing for each."""
        found: list[Condition] = []
        for element in elements:
            self._judged_unbound(self._unbound(element))
            if not isinstance(element, PathElement):
                types = element.types if isinstance(element, NodeElement) else element.edges
                found += [self._condition(*rule, element.slot) for rule in self._speaking(frozenset(types))]
        return found

    def _seen(self, condition: Condition) -> Condition:
        """The condition with nested patterns narrowed to what the actor sees: only what it looks at matters here."""

        def change(part: Condition) -> Condition | None:
            if not isinstance(part, (ExistsIn, PatternFold)):
                return None
            where = (*map(self._seen, part.pattern.where), *self._about(part.pattern.elements))
            return replace(part, pattern=ResolvedPattern(part.pattern.elements, where))

        return resolved.rebuild(condition, change)

    # --- elements that are not --------------------------------------------------------------------------------

    def _judged_unbound(self, types: Iterable[str]) -> None:
        for name in sorted(set(types)):
            for policy, operation in self._speaking(frozenset({name})):
                slot = self._resolver.frame.register()
                condition = self._condition(policy, operation, slot)
                self.wide.update(mentioned_types(condition))
                if slot in resolved.slots_of(condition):
                    self.wide.add(name)

    def _unbound(self, element: resolved.PatternElement) -> Iterator[str]:
        """Types of elements that must be visible for this one to match, though no variable holds them."""
        match element:
            case NodeElement():
                yield from self._behind(element.types)
            case EdgeElement():
                for name in element.edges:
                    parameters = self._schema.edges[name].parameters
                    for parameter, target in zip(parameters, element.targets, strict=True):
                        if not isinstance(target, int):
                            yield from self._of(parameter.type)
            case PathElement():
                yield element.edge
                yield from self._behind((element.edge,))

    def _behind(self, types: Iterable[str]) -> Iterator[str]:
        """An edge is visible only if all that it joins is."""
        for name in types:
            edge = self._schema.edges.get(name)
            for parameter in edge.parameters if edge is not None else ():
                yield from self._of(parameter.type)

    def _of(self, type_: Type) -> Iterator[str]:
        types = concrete_types(self._resolver.frame, type_)
        yield from types
        yield from self._behind(types)

    def _followed(self, condition: Condition) -> Iterator[str]:
        """Types of what references lead to: `t.owner.name` is null for those who do not see the owner."""
        for part in resolved.subexpressions(condition):
            base = getattr(part, "base", None)
            if base is not None and not isinstance(base, Slot):
                yield from self._of(base.type if base.type.is_reference else node_type())

    # --- policies ---------------------------------------------------------------------------------------------

    def _speaking(self, types: frozenset[str]) -> Iterator[tuple[PolicyDeclaration, OperationPattern]]:
        for policy, operation in self._reading:
            _, written = variable_of(operation, self._resolver.frame)
            type_ = resolve_type(self._resolver.frame, written) if written is not None else None
            names = named_types(self._resolver.frame, type_)
            if names is None or not names.isdisjoint(types):
                yield policy, operation

    def _condition(self, policy: PolicyDeclaration, operation: OperationPattern, slot: int) -> Condition:
        """The policy's condition with its variable in this register. Its other names are its own."""
        resolver = self._resolver
        variable, written = variable_of(operation, resolver.frame)
        second, second_type = operation.second or (None, None)
        scope = Scope(resolver.frame)
        for name, type_ in ((variable, written), (second, second_type)):
            if name is not None:
                known = resolve_type(resolver.frame, type_) if type_ is not None else node_type()
                scope.variables[name] = Slot(slot, name, known)
        place, resolver.place = resolver.place, PLACE
        lifted, resolver.frame.lifted = resolver.frame.lifted, False
        condition = resolver.resolve(policy.condition, scope)
        resolver.place, resolver.frame.lifted = place, lifted
        return condition


def mentioned_types(condition: Condition) -> Iterator[str]:
    """Every type that the condition looks at beyond the element that it is about."""
    for part in resolved.subexpressions(condition):
        if isinstance(part, (ExistsIn, PatternFold)):
            for element in part.pattern.elements:
                match element:
                    case NodeElement():
                        yield from element.types
                    case EdgeElement():
                        yield from element.edges
                    case PathElement():
                        yield element.edge
        elif _follows(part):
            yield from part.places


def _follows(part: Condition) -> TypeGuard[resolved.AttributeOf | resolved.DynamicAttribute]:
    if isinstance(part, (resolved.AttributeOf, resolved.DynamicAttribute)):
        return not isinstance(part.base, Slot)
    return False
