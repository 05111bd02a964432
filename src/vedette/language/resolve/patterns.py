"""Resolve patterns: variables get registers, edges their types; undeclared targets become implicit variables."""

from __future__ import annotations

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import split_conjuncts
from vedette.language.resolve.expressions import ExpressionResolver
from vedette.language.resolve.scope import QUERY_SITE, AnalysisContext, ExpressionSite, Scope
from vedette.language.resolve.tree import (
    ResolvedEdge,
    ResolvedExpression,
    ResolvedNode,
    ResolvedPath,
    ResolvedPattern,
)
from vedette.language.resolve.types import concrete_types, resolve_type
from vedette.language.schema.model import EdgeType
from vedette.language.syntax import expressions as syntax
from vedette.language.syntax.expressions import EdgePattern, NodePattern
from vedette.language.types import ANY_VALUE, Type, edge_type, node_type

__all__ = ["DEFAULT_MAX_PATH_DEPTH", "MAX_PATTERN_PARTS", "PatternResolver"]

MAX_PATTERN_PARTS = 200
"""Parts that one pattern may have. Planning takes time quadratic in this number."""
DEFAULT_MAX_PATH_DEPTH = 100
"""Edges that a transitive pattern follows at most if it sets no depth."""


class PatternResolver(ExpressionResolver):
    """Resolves patterns and the expressions in them. Resolving a pattern adds its variables to the scope."""

    def __init__(self, analysis: AnalysisContext, site: ExpressionSite = QUERY_SITE) -> None:
        super().__init__(analysis, site)
        self._implicit: set[int] = set()
        """Registers of implicit variables: used as targets of edges, but not declared."""

    def resolve_pattern(
        self, pattern: syntax.Pattern, where: syntax.Expression | None, scope: Scope
    ) -> ResolvedPattern:
        if len(pattern.elements) > MAX_PATTERN_PARTS:
            text = (
                f"A pattern may have at most {MAX_PATTERN_PARTS} parts, this one has {len(pattern.elements)}"
            )
            self._report("E3102", text, pattern)
            return ResolvedPattern(())
        elements: list[resolved.ResolvedPart] = []
        own: set[str] = set()
        for element in pattern.elements:
            self._declare(element, scope, own, elements)
        for element in pattern.elements:
            if isinstance(element, EdgePattern):
                self._edge(element, scope, elements)
        condition = self.resolve_condition(where, scope)
        return ResolvedPattern(tuple(elements), split_conjuncts(condition))

    def declared_variables(self, scope: Scope) -> list[resolved.VariableRef]:
        """Return the variables that `RETURN *` means: declared ones, without implicit variables."""
        return [variable for variable in scope.variables.values() if variable.register not in self._implicit]

    # --- variables --------------------------------------------------------------------------------------------

    def _declare(
        self, element: syntax.PatternPart, scope: Scope, own: set[str], into: list[resolved.ResolvedPart]
    ) -> None:
        """Bind the variable of a part. This runs before edges are resolved, so parts may have any order."""
        name = element.variable if isinstance(element, NodePattern) else element.alias
        if name is None:
            return
        if name.startswith("_"):
            self._report("E2009", f"'{name}': names that begin with '_' are reserved", element)
        if name in own or self._shadows(name, scope, element):
            self._report("E2005", f"Duplicate variable '{name}'", element)
            return
        own.add(name)
        if isinstance(element, NodePattern):
            into.append(self._node(element, scope))
        else:
            names = self._edge_names(element)
            type_ = edge_type(*names) if element.edge is not None else edge_type()
            scope.bind(name, type_)

    def _shadows(self, name: str, scope: Scope, element: syntax.PatternPart) -> bool:
        """True if the name is declared already. An implicit variable of an earlier block may still be declared."""
        known = scope.lookup(name)
        if known is None:
            return False
        implicit = name in scope.variables and known.register in self._implicit
        return not (implicit and isinstance(element, NodePattern))

    def _node(self, element: NodePattern, scope: Scope) -> ResolvedNode:
        type_ = resolve_type(self.analysis, element.type)
        if type_.kind not in ("Node", "Edge", "Any", "Union") or (
            type_.kind == "Union" and not all(member.is_reference for member in type_.members)
        ):
            self._report(
                "E2001",
                f"'{element.variable}' cannot be {type_}: a variable needs a node or edge type",
                element,
            )
            type_ = node_type()
        types = concrete_types(self.analysis, type_) if type_.kind != "Any" else ()
        known = scope.variables.get(element.variable)
        if known is not None:
            self._implicit.discard(known.register)
            narrowed = resolved.VariableRef(known.register, known.name, type_, known.optional)
            scope.variables[element.variable] = narrowed
            return ResolvedNode(known.register, element.variable, types, type_)
        variable = scope.bind(element.variable, type_)
        return ResolvedNode(variable.register, element.variable, types, type_)

    # --- edges ------------------------------------------------------------------------------------------------

    def _edge_names(self, element: EdgePattern) -> tuple[str, ...]:
        edges = self.analysis.schema.edges
        if element.edge is not None:
            return (element.edge,) if element.edge in edges else ()
        arity = len(element.targets)
        return tuple(name for name, edge in edges.items() if edge.arity == arity and not edge.is_layer0)

    def _edge(self, element: EdgePattern, scope: Scope, into: list[resolved.ResolvedPart]) -> None:
        names = self._edge_names(element)
        if element.edge is not None and element.edge.startswith("_"):
            self.analysis.uses_layer0 = True
        if element.edge is not None and not names:
            self._report("E2001", f"Unknown edge type '{element.edge}'", element)
            return
        edge = self.analysis.schema.edges[element.edge] if element.edge is not None else None
        if edge is not None and edge.arity != len(element.targets):
            text = f"Edge '{edge.name}' expects {edge.arity} targets, got {len(element.targets)} (arity)"
            self._report("E2007", text, element)
            return
        targets = tuple(
            self.resolve_edge_target(target, edge.parameters[i].type if edge else ANY_VALUE, scope, into)
            for i, target in enumerate(element.targets)
        )
        if element.quantifier is not None:
            self._path(element, edge, targets, into)
            return
        register = (
            scope.variables[element.alias].register if element.alias else self.analysis.allocate_register()
        )
        symmetric = edge is not None and edge.symmetric and targets != (None, None)
        into.append(ResolvedEdge(register, element.alias, names, targets, symmetric))

    def _path(
        self,
        element: EdgePattern,
        edge: EdgeType | None,
        targets: tuple[int | ResolvedExpression | None, ...],
        into: list[resolved.ResolvedPart],
    ) -> None:
        if edge is None or edge.arity != 2:
            self._report("E3103", "Only binary edges can be followed transitively", element)
            return
        if element.alias is not None:
            self._report("E3102", "A transitive edge is a path, it cannot be bound with AS", element)
        low = element.min_depth if element.min_depth is not None else (0 if element.quantifier == "*" else 1)
        high = element.max_depth if element.max_depth is not None else DEFAULT_MAX_PATH_DEPTH
        if high <= 0 or low < 0 or low > high:
            self._report(
                "E3101",
                f"Invalid depth {low}..{high}: the maximum must be at least 1 and not below the minimum",
                element,
            )
        low = 0 if element.quantifier == "*" and element.min_depth is None else max(low, 0)
        types, others = (concrete_types(self.analysis, parameter.type) for parameter in edge.parameters)
        both = frozenset(types).intersection(others)
        declared = element.max_depth is not None
        into.append(
            ResolvedPath(edge.name, targets[0], targets[1], types, both, low, high, edge.symmetric, declared)
        )

    def resolve_edge_target(
        self, target: syntax.EdgeTarget, type_: Type, scope: Scope, into: list[resolved.ResolvedPart]
    ) -> int | ResolvedExpression | None:
        if isinstance(target, syntax.Wildcard):
            return None
        if not isinstance(target, syntax.Variable):
            return self._target_value(target, scope)
        known = scope.lookup(target.name)
        if known is None:
            if target.name.startswith("_"):
                self._report("E2009", f"'{target.name}': names that begin with '_' are reserved", target)
            known = scope.bind(target.name, type_)
            self._implicit.add(known.register)
            types = concrete_types(self.analysis, type_)
            into.append(ResolvedNode(known.register, target.name, types, type_, implicit=True))
        elif self.are_disjoint(known.type, type_):
            self._report("E2003", f"'{target.name}' is {known.type}, the edge joins {type_} here", target)
        return known.register

    def _target_value(self, target: syntax.Expression, scope: Scope) -> ResolvedExpression:
        value = self.resolve(target, scope)
        if not value.type.is_reference and value.type.kind not in ("ID", "String", "Any", "Null"):
            self._report("E2003", f"A target must be an element or an id, this is {value.type}", target)
        return value

    def are_disjoint(self, left: Type, right: Type) -> bool:
        """True if no element can be of both types."""
        if "Any" in (left.kind, right.kind) or not (left.is_reference and right.is_reference):
            return False
        if left.kind != right.kind:
            return True
        mine = set(concrete_types(self.analysis, left))
        return (
            mine.isdisjoint(concrete_types(self.analysis, right)) and bool(mine) and right.names is not None
        )
