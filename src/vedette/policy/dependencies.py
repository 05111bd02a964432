"""Determines what an actor's view of a pattern depends on: everything its policies read.

A policy on an element that the pattern binds is treated like a condition on that element. Some elements are checked
without being bound (a wildcard target, the middle of a path, the target of a reference): a change of what their
policies read may affect any match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import registers_read, transform_expression, walk_expression
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import Scope
from vedette.language.resolve.tree import (
    ResolvedEdge,
    ResolvedExists,
    ResolvedExpression,
    ResolvedNode,
    ResolvedPath,
    ResolvedPattern,
    ResolvedPatternAggregate,
    VariableRef,
)
from vedette.language.resolve.types import concrete_types, resolve_type
from vedette.language.syntax.declarations import OperationPattern, PolicyDeclaration
from vedette.language.types import Type, node_type
from vedette.policy.decisions import POLICY_SITE, named_types, variable_of
from vedette.policy.operation_targets import graph_operation

__all__ = ["PolicyDependencies", "mentioned_types"]


class PolicyDependencies:
    """Collects, for one watch, the policy conditions to follow and the types whose changes may affect any match."""

    def __init__(self, resolver: PatternResolver, policies: Iterable[PolicyDeclaration]) -> None:
        self._resolver = resolver
        self._schema = resolver.analysis.schema
        self._reading = [
            (policy, operation)
            for policy in policies
            for written in policy.operations
            if written.operation in ("*", "MATCH")
            and (operation := graph_operation(written, self._schema)) is not None
        ]
        self.conditions: list[ResolvedExpression] = []
        self.rescan_types: set[str] = set()

    def collect(self, pattern: ResolvedPattern, conditions: Sequence[ResolvedExpression]) -> None:
        """Add a watch's pattern and the other expressions over its variables."""
        self.conditions += self._about(pattern.elements)
        for condition in (*pattern.where, *conditions):
            if any(
                isinstance(p, (ResolvedExists, ResolvedPatternAggregate)) for p in walk_expression(condition)
            ):
                self.conditions.append(self._seen(condition))
            self._add_rescan_types(self._followed(condition))

    # --- bound elements ---------------------------------------------------------------------------------------

    def _about(self, elements: Sequence[resolved.ResolvedPart]) -> list[ResolvedExpression]:
        """The conditions under which policies show these elements, over the elements' variables."""
        found: list[ResolvedExpression] = []
        for element in elements:
            self._add_rescan_types(self._unbound(element))
            if not isinstance(element, ResolvedPath):
                types = element.types if isinstance(element, ResolvedNode) else element.edge_types
                found += [
                    self._condition(*rule, element.register) for rule in self._policies_for(frozenset(types))
                ]
        return found

    def _seen(self, condition: ResolvedExpression) -> ResolvedExpression:
        """The condition with nested patterns restricted to what the actor sees. Used only for what it reads."""

        def change(part: ResolvedExpression) -> ResolvedExpression | None:
            if not isinstance(part, (ResolvedExists, ResolvedPatternAggregate)):
                return None
            where = (*map(self._seen, part.pattern.where), *self._about(part.pattern.elements))
            return replace(part, pattern=ResolvedPattern(part.pattern.elements, where))

        return transform_expression(condition, change)

    # --- unbound elements -------------------------------------------------------------------------------------

    def _add_rescan_types(self, types: Iterable[str]) -> None:
        for name in sorted(set(types)):
            for policy, operation in self._policies_for(frozenset({name})):
                slot = self._resolver.analysis.allocate_register()
                condition = self._condition(policy, operation, slot)
                self.rescan_types.update(mentioned_types(condition))
                if slot in registers_read(condition):
                    self.rescan_types.add(name)

    def _unbound(self, element: resolved.ResolvedPart) -> Iterator[str]:
        """Types of elements that must be visible for this one to match although no variable binds them."""
        match element:
            case ResolvedNode():
                yield from self._behind(element.types)
            case ResolvedEdge():
                for name in element.edge_types:
                    parameters = self._schema.edges[name].parameters
                    for parameter, target in zip(parameters, element.targets, strict=True):
                        if not isinstance(target, int):
                            yield from self._of(parameter.type)
            case ResolvedPath():
                yield element.edge
                yield from self._behind((element.edge,))

    def _behind(self, types: Iterable[str]) -> Iterator[str]:
        """An edge is visible only if all its targets are."""
        for name in types:
            edge = self._schema.edges.get(name)
            for parameter in edge.parameters if edge is not None else ():
                yield from self._of(parameter.type)

    def _of(self, type_: Type) -> Iterator[str]:
        types = concrete_types(self._resolver.analysis, type_)
        yield from types
        yield from self._behind(types)

    def _followed(self, condition: ResolvedExpression) -> Iterator[str]:
        """Types that references lead to: `t.owner.name` is null if the owner is hidden."""
        for part in walk_expression(condition):
            base = getattr(part, "base", None)
            if base is not None and not isinstance(base, VariableRef):
                yield from self._of(base.type if base.type.is_reference else node_type())

    # --- policies ---------------------------------------------------------------------------------------------

    def _policies_for(self, types: frozenset[str]) -> Iterator[tuple[PolicyDeclaration, OperationPattern]]:
        for policy, operation in self._reading:
            _, written = variable_of(operation, self._resolver.analysis)
            type_ = resolve_type(self._resolver.analysis, written) if written is not None else None
            names = named_types(self._resolver.analysis, type_)
            if names is None or not names.isdisjoint(types):
                yield policy, operation

    def _condition(
        self, policy: PolicyDeclaration, operation: OperationPattern, slot: int
    ) -> ResolvedExpression:
        """The policy's condition with its variable in this register. Its other names are local to it."""
        resolver = self._resolver
        variable, written = variable_of(operation, resolver.analysis)
        second, second_type = operation.second or (None, None)
        scope = Scope(resolver.analysis)
        for name, type_ in ((variable, written), (second, second_type)):
            if name is not None:
                known = resolve_type(resolver.analysis, type_) if type_ is not None else node_type()
                scope.variables[name] = VariableRef(slot, name, known)
        extracted, resolver.analysis.literals_extracted = resolver.analysis.literals_extracted, False
        with resolver.at_site(POLICY_SITE):
            condition = resolver.resolve(policy.condition, scope)
        resolver.analysis.literals_extracted = extracted
        return condition


def mentioned_types(condition: ResolvedExpression) -> Iterator[str]:
    """Every type that the condition reads beyond its own element."""
    for part in walk_expression(condition):
        if isinstance(part, (ResolvedExists, ResolvedPatternAggregate)):
            for element in part.pattern.elements:
                match element:
                    case ResolvedNode():
                        yield from element.types
                    case ResolvedEdge():
                        yield from element.edge_types
                    case ResolvedPath():
                        yield element.edge
        elif _follows(part):
            yield from part.index_by_type


def _follows(
    part: ResolvedExpression,
) -> TypeGuard[resolved.AttributeAccess | resolved.DynamicAttributeAccess]:
    if isinstance(part, (resolved.AttributeAccess, resolved.DynamicAttributeAccess)):
        return not isinstance(part.base, VariableRef)
    return False
