"""Plans ▸ closures that push every match of a pattern through a chain.

A step is a function of the row that binds registers, and calls the next step for every candidate that holds. It
returns True when somebody further down has seen enough (EXISTS, LIMIT), and then everything above stops too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vedette.element import Element
from vedette.language.compile import paths
from vedette.language.compile.execution_context import Row
from vedette.language.compile.expressions import CompiledExpression, compile_condition, compile_id
from vedette.language.compile.steps import (
    EdgeTargetMatcher,
    RowConsumer,
    bind_edge_targets,
    check_type,
    expand_edges,
    expand_symmetric,
    expand_to_one,
    filter_rows,
    register_id,
    scan_edges,
    scan_nodes,
    scan_nulls,
    seek_by_id,
    seek_by_index,
)
from vedette.language.functions.aggregates import apply_collect_limit
from vedette.language.plan.planner import plan_pattern
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
from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import registers_read
from vedette.language.resolve.tree import ResolvedEdge, ResolvedExpression, ResolvedPattern

__all__ = ["PatternCompiler", "StepWrapper", "symmetric_pairs"]

StepWrapper = Callable[[Plan, int, RowConsumer], RowConsumer]
"""Wraps the step at an index of a plan; PROFILE counts with it."""


class PatternCompiler:
    """Compiles patterns, and the patterns nested in their conditions, for one statement."""

    def __init__(self, context: PlanContext, observer: StepWrapper | None = None) -> None:
        self.context = context
        self.observer = observer
        self.plans: list[Plan] = []
        """Every plan made, the outermost first; for EXPLAIN."""

    # --- patterns ---------------------------------------------------------------------------------------------

    def compile_pattern(
        self,
        pattern: ResolvedPattern,
        next_step: RowConsumer,
        *,
        bound: frozenset[int] = frozenset(),
        outer: frozenset[int] = frozenset(),
        canonical_orientation: bool = True,
        long_lived: bool = False,
    ) -> RowConsumer:
        """A chain that calls `then` for every match of the pattern; not `canonical`: symmetric edges in both orders.

        `enduring`: it is kept while the graph grows, and begins at what is bound.
        """
        plan = plan_pattern(pattern, self.context, bound=bound, outer=outer, long_lived=long_lived)
        self.plans.append(plan)
        chain = self._canonical(pattern, outer, next_step) if canonical_orientation else next_step
        for index in range(len(plan.steps) - 1, -1, -1):
            chain = self._step(plan.steps[index], plan.bound_before[index], chain)
            if self.observer is not None:
                chain = self.observer(plan, index, chain)
        return chain

    def compile_expression(self, condition: ResolvedExpression) -> CompiledExpression:
        return compile_condition(condition, self._nested)

    def compile_element_id(self, condition: ResolvedExpression) -> CompiledExpression:
        return compile_id(condition, self._nested)

    def _nested(
        self, condition: resolved.ResolvedExists | resolved.ResolvedPatternAggregate
    ) -> CompiledExpression:
        outer = registers_read(condition)
        if isinstance(condition, resolved.ResolvedExists):
            return self.compile_pattern(condition.pattern, _stop, outer=outer)
        return self._fold(condition, outer)

    def _fold(self, fold: resolved.ResolvedPatternAggregate, outer: frozenset[int]) -> CompiledExpression:
        register = fold.register

        def collect(row: Row) -> bool:
            row[0].pattern_aggregate_stack[-1].append(row[register])
            return False

        chain = self.compile_pattern(fold.pattern, collect, outer=outer)

        def run(row: Row) -> Any:
            folds = row[0].pattern_aggregate_stack
            folds.append([])
            try:
                chain(row)
                matches = folds[-1]
            finally:
                folds.pop()
            if fold.name == "COUNT":
                return len(matches)
            matches.sort(
                key=_creation_order
            )  # in whatever order a view yields them, equal sets are equal lists
            return apply_collect_limit(matches, fold.limit)

        return run

    # --- symmetric edges --------------------------------------------------------------------------------------

    def _canonical(
        self, pattern: ResolvedPattern, outer: frozenset[int], next_step: RowConsumer
    ) -> RowConsumer:
        """A symmetric edge matches in either order; when both satisfy the whole pattern it counts once, as stored."""
        pairs = symmetric_pairs(pattern, outer)
        if not pairs:
            return next_step
        every = frozenset(
            element.register
            for element in pattern.elements
            if isinstance(element, (resolved.ResolvedNode, ResolvedEdge))
        )
        check = self._plain_chain(pattern, _stop, every, outer)

        def canonical_orientation(row: Row) -> bool:
            for edge, first, second in pairs:
                a, b = row[first], row[second]
                if a is not b and row[edge].targets[0] != a.id:
                    turned = row.copy()
                    turned[first], turned[second] = b, a
                    if check(turned):
                        return False
            return next_step(row)

        return canonical_orientation

    def _plain_chain(
        self, pattern: ResolvedPattern, next_step: RowConsumer, bound: frozenset[int], outer: frozenset[int]
    ) -> RowConsumer:
        plan = plan_pattern(pattern, self.context, bound=bound, outer=outer)
        for index in range(len(plan.steps) - 1, -1, -1):
            next_step = self._step(plan.steps[index], plan.bound_before[index], next_step)
        return next_step

    # --- steps ------------------------------------------------------------------------------------------------

    def _step(self, step: PlanStep, bound: frozenset[int], next_step: RowConsumer) -> RowConsumer:
        match step:
            case FilterRows():
                return filter_rows(self.compile_expression(step.condition), next_step)
            case CheckType():
                return check_type(step.node.register, frozenset(step.node.types), next_step)
            case SeekById():
                return seek_by_id(
                    step.node.register,
                    frozenset(step.node.types),
                    self.compile_element_id(step.key),
                    next_step,
                )
            case SeekByIndex():
                return self._by_index(step, next_step)
            case ScanNodes():
                return scan_nodes(step.node.register, step.node.types, next_step)
            case ScanEdges():
                return scan_edges(step.edge, self._targets(step.edge, None, bound), next_step)
            case ExpandEdges():
                return self._expand(step, bound, next_step)
            case BindEdgeTargets():
                return bind_edge_targets(step.edge, self._targets(step.edge, None, bound), next_step)
            case FollowPath():
                return self._follow(step, bound, next_step)

    def _by_index(self, step: SeekByIndex, next_step: RowConsumer) -> RowConsumer:
        schema, node = self.context.schema, step.node
        owner = schema.nodes.get(step.owner)
        covered = (
            set(schema.concrete_subtypes(frozenset({step.owner}))) if owner is not None else {step.owner}
        )
        types = None if covered <= set(node.types) else frozenset(node.types)
        nulls = scan_nulls(node, step.attribute, schema, next_step)
        return seek_by_index(
            node.register,
            step.owner,
            step.attribute,
            self.compile_element_id(step.key),
            types,
            nulls,
            next_step,
        )

    def _targets(self, edge: ResolvedEdge, skip: int | None, bound: frozenset[int]) -> EdgeTargetMatcher:
        """What to do with each target of a candidate edge: compare it with something known, or bind a register."""
        checks: list[tuple[int, CompiledExpression]] = []
        binds: list[tuple[int, int]] = []
        fresh: set[int] = set()
        for position, target in enumerate(edge.targets):
            if position == skip or target is None:
                continue
            if not isinstance(target, int):
                checks.append((position, self.compile_element_id(target)))
            elif target in bound or target in fresh:
                checks.append((position, register_id(target)))
            else:
                fresh.add(target)
                binds.append((position, target))
        repeated = [
            (position, closure) for position, closure in checks if _reads_fresh(edge, position, fresh)
        ]
        early = [(position, closure) for position, closure in checks if (position, closure) not in repeated]
        return EdgeTargetMatcher(tuple(early), tuple(binds), tuple(repeated))

    def _expand(self, step: ExpandEdges, bound: frozenset[int], next_step: RowConsumer) -> RowConsumer:
        edge, position = step.edge, step.position
        target = edge.targets[position]
        assert target is not None
        anchor = register_id(target) if isinstance(target, int) else self.compile_element_id(target)
        targets = self._targets(edge, position, bound)
        if edge.symmetric:
            return expand_symmetric(edge, position, anchor, targets, next_step)
        if (
            len(edge.edge_types) == 1
            and len(targets.binds) == 1
            and not targets.checks
            and not targets.late_checks
        ):
            return expand_to_one(edge, position, anchor, targets.binds[0], next_step)
        return expand_edges(edge, position, anchor, targets, next_step)

    def _follow(self, step: FollowPath, bound: frozenset[int], next_step: RowConsumer) -> RowConsumer:
        path = step.path
        start, end = (path.source, path.target) if step.forward else (path.target, path.source)
        return paths.compile_path_step(
            path,
            forward=step.forward,
            start=self._end(start, bound),
            end=self._end(end, bound) if start != end or start is None else paths.SAME_AS_START,
            next_step=next_step,
        )

    def _end(self, end: int | ResolvedExpression | None, bound: frozenset[int]) -> paths.PathEnd:
        if end is None:
            return None
        if isinstance(end, int):
            return register_id(end) if end in bound else end
        return self.compile_element_id(end)


def symmetric_pairs(pattern: ResolvedPattern, outer: frozenset[int]) -> list[tuple[int, int, int]]:
    """(edge, first, second) for symmetric edges between two variables of the pattern.

    Of several edges between the same two variables only the first counts: each may be stored in another order.
    """
    pairs: dict[frozenset[int], tuple[int, int, int]] = {}
    for element in pattern.elements:
        if isinstance(element, ResolvedEdge) and element.symmetric:
            first, second = element.targets
            if not isinstance(first, int) or not isinstance(second, int) or first == second:
                continue
            if first not in outer and second not in outer:
                pairs.setdefault(frozenset((first, second)), (element.register, first, second))
    return list(pairs.values())


def _reads_fresh(edge: ResolvedEdge, position: int, fresh: set[int]) -> bool:
    return edge.targets[position] in fresh


def _creation_order(element: Element) -> tuple[int, str]:
    """Elements in the order of their creation: ids count up."""
    return len(element.id), element.id


def _stop(row: Row) -> bool:
    return True
