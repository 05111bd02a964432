"""Choose the order in which the parts of a pattern are searched, and the index that each step uses.

Theory of operation. The planner is greedy. It repeatedly takes the part with the lowest estimated number of candidates:
first an id, an indexed value or the smallest type, then edges from elements that are bound. After each step it adds the
conditions whose variables are all bound, the cheapest first. Conditions that can raise come last, in their written
order. A cross product results only if the pattern itself has unconnected parts.
"""

from __future__ import annotations

from vedette.language.plan.steps import (
    BindEdgeTargets,
    CheckType,
    ExpandEdges,
    FilterRows,
    FollowPath,
    Plan,
    PlanContext,
    PlanStep,
    ScanEdges,
    ScanNodes,
    SeekById,
    SeekByIndex,
)
from vedette.language.resolve.analysis import can_raise, registers_read, walk_expression
from vedette.language.resolve.tree import (
    AttributeAccess,
    BinaryOperation,
    IdOf,
    ResolvedEdge,
    ResolvedExists,
    ResolvedExpression,
    ResolvedNode,
    ResolvedPart,
    ResolvedPath,
    ResolvedPattern,
    ResolvedPatternAggregate,
    VariableRef,
)
from vedette.language.types import NULL

__all__ = ["plan_pattern"]

_SCAN_PENALTY = 1.0
"""Added to the estimate of a scan, so that an equally cheap expansion is preferred."""
_LONG_LIVED_SCAN_PENALTY = 1e9
"""The same for long-lived plans: the scanned type may grow, so an expansion is always preferred."""
_PATH_COST = 20.0
"""Assumed number of candidates of a path with one bound end. There are no statistics for paths."""


def plan_pattern(
    pattern: ResolvedPattern,
    context: PlanContext,
    *,
    bound: frozenset[int] = frozenset(),
    outer: frozenset[int] = frozenset(),
    long_lived: bool = False,
) -> Plan:
    """Plan the search for a pattern.

    bound: registers of the pattern that are set before the search starts.
    outer: registers of a surrounding pattern, also set before.
    long_lived: the plan is kept while the graph grows (rules, constraints, watches). It follows edges from bound
        registers even where a scan is cheaper today.

    The one side effect: `context.ensure_index` creates an index for a join by value, because the estimate needs it.
    """
    return _Planner(
        pattern, context, bound | outer, outer, _LONG_LIVED_SCAN_PENALTY if long_lived else _SCAN_PENALTY
    ).run()


class _Planner:
    def __init__(
        self,
        pattern: ResolvedPattern,
        context: PlanContext,
        bound: frozenset[int],
        outer: frozenset[int],
        scan_penalty: float,
    ) -> None:
        self.pattern = pattern
        self.context = context
        self.bound = set(bound)
        self.outer_registers = outer
        self.scan_penalty = scan_penalty
        self.known_types: dict[int, frozenset[str]] = {}
        """The possible types of a bound register, where its node or edge guarantees them."""
        self.untyped_registers: set[int] = set(bound - outer)
        """Registers whose element may have any type: bound by a path of zero edges, or by the caller.

        A `CheckType` step must test them.
        """
        self.elements = list(pattern.elements)
        self.pending_conditions = [(c, registers_read(c)) for c in pattern.where if not can_raise(c)]
        self.raising_conditions = [condition for condition in pattern.where if can_raise(condition)]
        """Tested last and in their written order, because AND stops at the first false condition."""
        self.steps: list[tuple[PlanStep, float, frozenset[int]]] = []

    def run(self) -> Plan:
        self._filters()
        while self.elements:
            cost, step, element = min(
                (self._best(element) for element in self.elements), key=lambda choice: choice[0]
            )
            self._add_step(step, cost, element)
            self._filters()
        self.steps += [
            (FilterRows(condition), 0.0, frozenset(self.bound)) for condition in self.raising_conditions
        ]
        return Plan(
            self.pattern,
            tuple(step for step, _, _ in self.steps),
            tuple(cost for _, cost, _ in self.steps),
            tuple(bound for _, _, bound in self.steps),
            self.outer_registers,
        )

    # --- estimates --------------------------------------------------------------------------------------------

    def _best(self, element: ResolvedPart) -> tuple[float, PlanStep, ResolvedPart]:
        if isinstance(element, ResolvedNode):
            return (*self._node(element), element)
        if isinstance(element, ResolvedEdge):
            return (*self._edge(element), element)
        return (*self._path(element), element)

    def _node(self, node: ResolvedNode) -> tuple[float, PlanStep]:
        if node.register in self.bound:
            return 0.0, CheckType(node)
        size = float(self.context.statistics.count(node.types))
        if node.implicit:
            return 2.0 * size + 1e12, ScanNodes(node)
        best: tuple[float, PlanStep] = (size + self.scan_penalty, ScanNodes(node))
        for condition, _ in self.pending_conditions:
            keyed = self._seek_step(node, condition)
            if keyed is not None and keyed[0] < best[0]:
                best = keyed
        return best

    def _seek_step(self, node: ResolvedNode, condition: ResolvedExpression) -> tuple[float, PlanStep] | None:
        """Return the cost and step for a condition `node.attr = key` if the key is known and an index can be used."""
        if not isinstance(condition, BinaryOperation) or condition.op != "=":
            return None
        for side, key in ((condition.left, condition.right), (condition.right, condition.left)):
            if not registers_read(key) <= self.bound or key.type == NULL:
                continue
            if isinstance(side, (IdOf, VariableRef)) and _register_of(side) == node.register:
                return 0.5, SeekById(node, key)
            if isinstance(side, AttributeAccess) and _register_of(side) == node.register:
                found = self._indexed(node, side, key)
                if found is not None:
                    return found
        return None

    def _indexed(
        self, node: ResolvedNode, side: AttributeAccess, key: ResolvedExpression
    ) -> tuple[float, PlanStep] | None:
        if key.type != side.type and not (key.type.is_numeric and side.type.is_numeric):
            return None
        if side.type.kind == "Union":  # an index does not distinguish true from 1
            return None
        attribute = self._declaration(node, side.name)
        if attribute is None:
            return None
        owner, declared = attribute
        indexed = declared or self.context.has_index(owner, side.name)
        joins = bool(registers_read(key))
        if not indexed and not joins:
            return None
        if not indexed:
            self.context.ensure_index(owner, side.name)
        cost = self.context.statistics.elements_per_value(owner, side.name)
        return cost, SeekByIndex(node, owner, side.name, key)

    def _declaration(self, node: ResolvedNode, name: str) -> tuple[str, bool] | None:
        """Return the type that declares the attribute for all types of the node, and whether it is indexed."""
        schema = self.context.schema
        owners = set()
        for type_name in node.types:
            holder = schema.nodes.get(type_name) or schema.edges.get(type_name)
            attribute = holder.attributes.get(name) if holder is not None else None
            if holder is None or attribute is None or holder.is_layer0:
                return None
            owners.add((attribute.declared_in, attribute.indexed or attribute.unique))
        return owners.pop() if len(owners) == 1 else None

    def _edge(self, edge: ResolvedEdge) -> tuple[float, PlanStep]:
        if edge.register in self.bound:
            return 0.1, BindEdgeTargets(edge)
        statistics = self.context.statistics
        choices: list[tuple[float, PlanStep]] = []
        bound = [p for p, target in enumerate(edge.targets) if self._is_known(target)]
        for position in bound:
            fan_out = (
                max(statistics.average_degree(name, position) for name in edge.edge_types)
                if edge.edge_types
                else 0.0
            )
            if edge.symmetric:
                fan_out += statistics.average_degree(edge.edge_types[0], 1 - position)
            cost = fan_out if len(bound) < len(edge.targets) else min(fan_out, 1.0)
            choices.append((cost, ExpandEdges(edge, position)))
        if choices:
            return min(choices, key=lambda choice: choice[0])
        return float(statistics.count(edge.edge_types)) + self.scan_penalty + 0.5, ScanEdges(edge)

    def _path(self, path: ResolvedPath) -> tuple[float, PlanStep]:
        source, target = self._is_known(path.source), self._is_known(path.target)
        if source or target:
            return (_PATH_COST if not (source and target) else 5.0), FollowPath(path, source)
        size = float(self.context.statistics.count(path.source_types))
        return 1e6 + self.scan_penalty + size, FollowPath(path, True)

    def _is_known(self, target: int | ResolvedExpression | None) -> bool:
        if target is None:
            return False
        if isinstance(target, int):
            return target in self.bound
        return registers_read(target) <= self.bound

    # --- steps ------------------------------------------------------------------------------------------------

    def _add_step(self, step: PlanStep, cost: float, element: ResolvedPart) -> None:
        self.elements.remove(element)
        needless = isinstance(step, CheckType) and self._has_known_type(step.node)
        if not needless:
            self.steps.append((step, cost, frozenset(self.bound)))
        if isinstance(element, ResolvedNode):
            self.bound.add(element.register)
            self.known_types[element.register] = frozenset(element.types)
        elif isinstance(element, ResolvedEdge):
            self.bound.add(element.register)
            self._bind_edge_targets(element)
        else:
            ends = {end for end in (element.source, element.target) if isinstance(end, int)}
            self.untyped_registers |= ends - self.bound
            self.bound |= ends

    def _has_known_type(self, node: ResolvedNode) -> bool:
        """True if the register can only hold elements of the node's types, so that no CheckType step is needed."""
        known = self.known_types.get(node.register)
        if known is not None:
            return known <= frozenset(node.types)
        return node.implicit and node.register not in self.untyped_registers

    def _bind_edge_targets(self, edge: ResolvedEdge) -> None:
        schema = self.context.schema
        for position, target in enumerate(edge.targets):
            if isinstance(target, int) and target not in self.bound:
                self.bound.add(target)
                if len(edge.edge_types) == 1:
                    type_ = schema.edges[edge.edge_types[0]].parameters[position].type
                    if type_.kind == "Node":
                        self.known_types[target] = frozenset(schema.concrete_subtypes(type_.names))

    def _filters(self) -> None:
        """Add the conditions that can be tested now. A condition may read an element only after its type is checked."""
        unsure = {
            element.register
            for element in self.elements
            if isinstance(element, ResolvedNode) and not self._has_known_type(element)
        }
        ready = [
            (c, registers) for c, registers in self.pending_conditions if registers <= self.bound - unsure
        ]
        self.pending_conditions = [item for item in self.pending_conditions if item not in ready]
        for condition, _ in sorted(ready, key=lambda item: _evaluation_cost(item[0])):
            if not self._is_covered_by_seek(condition):
                self.steps.append((FilterRows(condition), 0.0, frozenset(self.bound)))

    def _is_covered_by_seek(self, condition: ResolvedExpression) -> bool:
        """True if the last step was a seek by this condition, so that it needs no test."""
        last = self.steps[-1][0] if self.steps else None
        if (
            not isinstance(last, (SeekById, SeekByIndex))
            or not isinstance(condition, BinaryOperation)
            or condition.op != "="
        ):
            return False
        for side, key in ((condition.left, condition.right), (condition.right, condition.left)):
            if key is last.key and _register_of(side) == last.node.register:
                if isinstance(last, SeekById):
                    return isinstance(side, (IdOf, VariableRef))
                return isinstance(side, AttributeAccess) and side.name == last.attribute
        return False


def _register_of(condition: ResolvedExpression) -> int | None:
    if isinstance(condition, (IdOf, AttributeAccess)):
        condition = condition.base
    return condition.register if isinstance(condition, VariableRef) else None


def _evaluation_cost(condition: ResolvedExpression) -> int:
    """Estimate the cost of a condition; a nested pattern counts as 50 simple expressions."""
    return sum(
        50 if isinstance(part, (ResolvedExists, ResolvedPatternAggregate)) else 1
        for part in walk_expression(condition)
    )
