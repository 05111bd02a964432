"""Compile patterns: a plan becomes nested closures that push every match to a consumer.

Theory of operation. `plan_pattern` orders the steps of a pattern. `compile_pattern` builds the closures from the last
step to the first, so each closure knows the next one. Calling the first closure with a row runs the whole search: every
step binds registers of the row for one candidate after the other and calls the next step; the last step calls the
consumer. Nothing is collected in between, and a search that needs no more rows stops by returning True.

EXISTS and pattern aggregates are patterns inside an expression. They are compiled the same way, with the registers of
the surrounding pattern as outer registers.

A symmetric edge matches in both orientations. If both satisfy the whole pattern, the match is reported once, in the
orientation in which the edge is stored (the canonical orientation).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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

__all__ = ["CompiledPattern", "PatternCompiler", "StepWrapper", "symmetric_pairs"]

StepWrapper = Callable[[Plan, int, RowConsumer], RowConsumer]
"""Wraps the step at an index of a plan. PROFILE counts rows with it."""


class CompiledPattern(NamedTuple):
    plan: Plan
    run: RowConsumer
    """Searches the matches for a row whose outer and bound registers are set. Returns True if a consumer stopped it."""


class PatternCompiler:
    """Compiles the patterns and expressions of one statement."""

    def __init__(self, context: PlanContext, observer: StepWrapper | None = None) -> None:
        self.context = context
        self.observer = observer
        self.plans: list[Plan] = []
        """Every plan made, in the order of compilation; for EXPLAIN."""

    # --- patterns ---------------------------------------------------------------------------------------------

    def compile_pattern(
        self,
        pattern: ResolvedPattern,
        consumer: RowConsumer,
        *,
        bound: frozenset[int] = frozenset(),
        outer: frozenset[int] = frozenset(),
        canonical_orientation: bool = True,
        long_lived: bool = False,
    ) -> CompiledPattern:
        """Compile a search that calls `consumer` for every match of the pattern.

        bound: registers of the pattern that the caller sets before it runs the search.
        outer: registers of a surrounding pattern, also set by the caller.
        canonical_orientation: False reports a match over a symmetric edge in both orientations.
        long_lived: the search is kept while the graph grows (see `plan_pattern`).
        """
        plan = plan_pattern(pattern, self.context, bound=bound, outer=outer, long_lived=long_lived)
        self.plans.append(plan)
        run = self._report_once(pattern, outer, consumer) if canonical_orientation else consumer
        for index in range(len(plan.steps) - 1, -1, -1):
            run = self._compile_step(plan.steps[index], plan.bound_before[index], run)
            if self.observer is not None:
                run = self.observer(plan, index, run)
        return CompiledPattern(plan, run)

    def compile_expression(self, condition: ResolvedExpression) -> CompiledExpression:
        return compile_condition(condition, self._compile_nested)

    def compile_element_id(self, condition: ResolvedExpression) -> CompiledExpression:
        """Compile an expression that refers to an element; the result is the element's id."""
        return compile_id(condition, self._compile_nested)

    def _compile_nested(
        self, condition: resolved.ResolvedExists | resolved.ResolvedPatternAggregate
    ) -> CompiledExpression:
        outer = registers_read(condition)
        if isinstance(condition, resolved.ResolvedExists):
            return self.compile_pattern(condition.pattern, _stop, outer=outer).run
        return self._compile_pattern_aggregate(condition, outer)

    def _compile_pattern_aggregate(
        self, aggregate: resolved.ResolvedPatternAggregate, outer: frozenset[int]
    ) -> CompiledExpression:
        register = aggregate.register

        def collect(row: Row) -> bool:
            row[0].pattern_aggregate_stack[-1].append(row[register])
            return False

        search = self.compile_pattern(aggregate.pattern, collect, outer=outer).run

        def evaluate(row: Row) -> Any:
            stack = row[0].pattern_aggregate_stack
            stack.append([])
            try:
                search(row)
                matches = stack[-1]
            finally:
                stack.pop()
            if aggregate.name == "COUNT":
                return len(matches)
            # Views return elements in different orders; sorting makes COLLECT of equal sets equal.
            matches.sort(key=_creation_order)
            return apply_collect_limit(matches, aggregate.limit)

        return evaluate

    # --- symmetric edges --------------------------------------------------------------------------------------

    def _report_once(
        self, pattern: ResolvedPattern, outer: frozenset[int], consumer: RowConsumer
    ) -> RowConsumer:
        """Skip a match in the swapped orientation if the stored orientation also satisfies the whole pattern."""
        pairs = symmetric_pairs(pattern, outer)
        if not pairs:
            return consumer
        bound = frozenset(
            element.register
            for element in pattern.elements
            if isinstance(element, (resolved.ResolvedNode, ResolvedEdge))
        )
        matches = self._compile_check(pattern, bound, outer)

        def report(row: Row) -> bool:
            for edge, first, second in pairs:
                a, b = row[first], row[second]
                if a is not b and row[edge].targets[0] != a.id:
                    swapped = row.copy()
                    swapped[first], swapped[second] = b, a
                    if matches(swapped):
                        return False
            return consumer(row)

        return report

    def _compile_check(
        self, pattern: ResolvedPattern, bound: frozenset[int], outer: frozenset[int]
    ) -> RowConsumer:
        """Return a test of a row whose registers are all set. Its plan is not listed in `plans`."""
        plan = plan_pattern(pattern, self.context, bound=bound, outer=outer)
        run: RowConsumer = _stop
        for index in range(len(plan.steps) - 1, -1, -1):
            run = self._compile_step(plan.steps[index], plan.bound_before[index], run)
        return run

    # --- steps ------------------------------------------------------------------------------------------------

    def _compile_step(self, step: PlanStep, bound: frozenset[int], next_step: RowConsumer) -> RowConsumer:
        match step:
            case FilterRows():
                return filter_rows(self.compile_expression(step.condition), next_step)
            case CheckType():
                return check_type(step.node.register, frozenset(step.node.types), next_step)
            case SeekById():
                key = self.compile_element_id(step.key)
                return seek_by_id(step.node.register, frozenset(step.node.types), key, next_step)
            case SeekByIndex():
                return self._seek_by_index(step, next_step)
            case ScanNodes():
                return scan_nodes(step.node.register, step.node.types, next_step)
            case ScanEdges():
                return scan_edges(step.edge, self._match_targets(step.edge, None, bound), next_step)
            case ExpandEdges():
                return self._expand(step, bound, next_step)
            case BindEdgeTargets():
                return bind_edge_targets(step.edge, self._match_targets(step.edge, None, bound), next_step)
            case FollowPath():
                return self._follow_path(step, bound, next_step)

    def _seek_by_index(self, step: SeekByIndex, next_step: RowConsumer) -> RowConsumer:
        """The index covers the declaring type and all its subtypes; filter by type if the pattern wants fewer."""
        schema, node = self.context.schema, step.node
        owner = schema.nodes.get(step.owner)
        covered = (
            set(schema.concrete_subtypes(frozenset({step.owner}))) if owner is not None else {step.owner}
        )
        types = None if covered <= set(node.types) else frozenset(node.types)
        nulls = scan_nulls(node, step.attribute, schema, next_step)
        key = self.compile_element_id(step.key)
        return seek_by_index(node.register, step.owner, step.attribute, key, types, nulls, next_step)

    def _match_targets(
        self, edge: ResolvedEdge, skip: int | None, bound: frozenset[int]
    ) -> EdgeTargetMatcher:
        """For each target of a candidate edge except position `skip`: compare it with a known id, or bind it."""
        checks: list[tuple[int, CompiledExpression]] = []
        late_checks: list[tuple[int, CompiledExpression]] = []
        binds: list[tuple[int, int]] = []
        fresh: set[int] = set()
        for position, target in enumerate(edge.targets):
            if position == skip or target is None:
                continue
            if not isinstance(target, int):
                checks.append((position, self.compile_element_id(target)))
            elif target in fresh:  # `knows(p, p)`: compare with the register that an earlier position binds
                late_checks.append((position, register_id(target)))
            elif target in bound:
                checks.append((position, register_id(target)))
            else:
                fresh.add(target)
                binds.append((position, target))
        return EdgeTargetMatcher(tuple(checks), tuple(binds), tuple(late_checks))

    def _expand(self, step: ExpandEdges, bound: frozenset[int], next_step: RowConsumer) -> RowConsumer:
        edge, position = step.edge, step.position
        target = edge.targets[position]
        assert target is not None
        anchor = register_id(target) if isinstance(target, int) else self.compile_element_id(target)
        targets = self._match_targets(edge, position, bound)
        if edge.symmetric:
            return expand_symmetric(edge, position, anchor, targets, next_step)
        one_free_end = len(targets.binds) == 1 and not targets.checks and not targets.late_checks
        if len(edge.edge_types) == 1 and one_free_end:
            return expand_to_one(edge, position, anchor, targets.binds[0], next_step)
        return expand_edges(edge, position, anchor, targets, next_step)

    def _follow_path(self, step: FollowPath, bound: frozenset[int], next_step: RowConsumer) -> RowConsumer:
        path = step.path
        start, end = (path.source, path.target) if step.forward else (path.target, path.source)
        return paths.compile_path_step(
            path,
            forward=step.forward,
            start=self._path_end(start, bound),
            end=self._path_end(end, bound) if start != end or start is None else paths.SAME_AS_START,
            next_step=next_step,
        )

    def _path_end(self, end: int | ResolvedExpression | None, bound: frozenset[int]) -> paths.PathEnd:
        if end is None:
            return None
        if isinstance(end, int):
            return register_id(end) if end in bound else end
        return self.compile_element_id(end)


def symmetric_pairs(pattern: ResolvedPattern, outer: frozenset[int]) -> list[tuple[int, int, int]]:
    """Return the registers (edge, first, second) of each symmetric edge between two variables of the pattern.

    Of several edges between the same two variables only the first counts, because each may be stored in another
    orientation.
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


def _creation_order(element: Element) -> tuple[int, str]:
    """Sort key: ids are increasing numbers as text, so a longer id is a later one."""
    return len(element.id), element.id


def _stop(row: Row) -> bool:
    return True
