"""Plans ▸ closures that push every match of a pattern through a chain.

A step is a function of the row that binds registers, and calls the next step for every candidate that holds. It
returns True when somebody further down has seen enough (EXISTS, LIMIT), and then everything above stops too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vedette.element import Element
from vedette.language.compile import paths
from vedette.language.compile.execution_context import Row
from vedette.language.compile.expressions import CompiledExpression, compile_condition, compile_id
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
from vedette.language.resolve.tree import ResolvedEdge, ResolvedExpression, ResolvedNode, ResolvedPattern
from vedette.language.schema.model import Schema

__all__ = ["PatternCompiler", "RowConsumer", "StepWrapper", "symmetric_pairs"]

RowConsumer = Callable[[Row], bool]
StepWrapper = Callable[[Plan, int, RowConsumer], RowConsumer]
"""Wraps the step at an index of a plan; PROFILE counts with it."""

_CHARGE_EVERY_CANDIDATES = 4096


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
        then: RowConsumer,
        *,
        bound: frozenset[int] = frozenset(),
        outer: frozenset[int] = frozenset(),
        canonical: bool = True,
        long_lived: bool = False,
    ) -> RowConsumer:
        """A chain that calls `then` for every match of the pattern; not `canonical`: symmetric edges in both orders.

        `enduring`: it is kept while the graph grows, and begins at what is bound.
        """
        plan = plan_pattern(pattern, self.context, bound=bound, outer=outer, long_lived=long_lived)
        self.plans.append(plan)
        chain = self._canonical(pattern, outer, then) if canonical else then
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
        slot = fold.register

        def collect(row: Row) -> bool:
            row[0].pattern_aggregate_stack[-1].append(row[slot])
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

    def _canonical(self, pattern: ResolvedPattern, outer: frozenset[int], then: RowConsumer) -> RowConsumer:
        """A symmetric edge matches in either order; when both satisfy the whole pattern it counts once, as stored."""
        pairs = symmetric_pairs(pattern, outer)
        if not pairs:
            return then
        every = frozenset(
            element.register
            for element in pattern.elements
            if isinstance(element, (resolved.ResolvedNode, ResolvedEdge))
        )
        check = self._plain_chain(pattern, _stop, every, outer)

        def canonical(row: Row) -> bool:
            for edge, first, second in pairs:
                a, b = row[first], row[second]
                if a is not b and row[edge].targets[0] != a.id:
                    turned = row.copy()
                    turned[first], turned[second] = b, a
                    if check(turned):
                        return False
            return then(row)

        return canonical

    def _plain_chain(
        self, pattern: ResolvedPattern, then: RowConsumer, bound: frozenset[int], outer: frozenset[int]
    ) -> RowConsumer:
        plan = plan_pattern(pattern, self.context, bound=bound, outer=outer)
        for index in range(len(plan.steps) - 1, -1, -1):
            then = self._step(plan.steps[index], plan.bound_before[index], then)
        return then

    # --- steps ------------------------------------------------------------------------------------------------

    def _step(self, step: PlanStep, bound: frozenset[int], then: RowConsumer) -> RowConsumer:
        match step:
            case FilterRows():
                return _filter(self.compile_expression(step.condition), then)
            case CheckType():
                return _check_type(step.node.register, frozenset(step.node.types), then)
            case SeekById():
                return _by_id(
                    step.node.register, frozenset(step.node.types), self.compile_element_id(step.key), then
                )
            case SeekByIndex():
                return self._by_index(step, then)
            case ScanNodes():
                return _scan(step.node.register, step.node.types, then)
            case ScanEdges():
                return _scan_edges(step.edge, self._targets(step.edge, None, bound), then)
            case ExpandEdges():
                return self._expand(step, bound, then)
            case BindEdgeTargets():
                return _unfold(step.edge, self._targets(step.edge, None, bound), then)
            case FollowPath():
                return self._follow(step, bound, then)

    def _by_index(self, step: SeekByIndex, then: RowConsumer) -> RowConsumer:
        schema, node = self.context.schema, step.node
        owner = schema.nodes.get(step.owner)
        covered = (
            set(schema.concrete_subtypes(frozenset({step.owner}))) if owner is not None else {step.owner}
        )
        types = None if covered <= set(node.types) else frozenset(node.types)
        nulls = _scan_nulls(node, step.attribute, schema, then)
        return _lookup(
            node.register, step.owner, step.attribute, self.compile_element_id(step.key), types, nulls, then
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
                checks.append((position, _register_id(target)))
            else:
                fresh.add(target)
                binds.append((position, target))
        repeated = [
            (position, closure) for position, closure in checks if _reads_fresh(edge, position, fresh)
        ]
        early = [(position, closure) for position, closure in checks if (position, closure) not in repeated]
        return EdgeTargetMatcher(tuple(early), tuple(binds), tuple(repeated))

    def _expand(self, step: ExpandEdges, bound: frozenset[int], then: RowConsumer) -> RowConsumer:
        edge, position = step.edge, step.position
        target = edge.targets[position]
        assert target is not None
        anchor = _register_id(target) if isinstance(target, int) else self.compile_element_id(target)
        targets = self._targets(edge, position, bound)
        if edge.symmetric:
            return _expand_symmetric(edge, position, anchor, targets, then)
        if (
            len(edge.edge_types) == 1
            and len(targets.binds) == 1
            and not targets.checks
            and not targets.late_checks
        ):
            return _expand_to_one(edge, position, anchor, targets.binds[0], then)
        return _expand(edge, position, anchor, targets, then)

    def _follow(self, step: FollowPath, bound: frozenset[int], then: RowConsumer) -> RowConsumer:
        path = step.path
        start, end = (path.source, path.target) if step.forward else (path.target, path.source)
        return paths.compile_path_step(
            path,
            forward=step.forward,
            start=self._end(start, bound),
            end=self._end(end, bound) if start != end or start is None else paths.SAME_AS_START,
            then=then,
        )

    def _end(self, end: int | ResolvedExpression | None, bound: frozenset[int]) -> paths.PathEnd:
        if end is None:
            return None
        if isinstance(end, int):
            return _register_id(end) if end in bound else end
        return self.compile_element_id(end)


class EdgeTargetMatcher:
    """For each candidate edge: targets to compare first, registers to bind, then comparisons among what was bound."""

    __slots__ = ("binds", "checks", "late_checks")

    def __init__(
        self,
        checks: tuple[tuple[int, CompiledExpression], ...],
        binds: tuple[tuple[int, int], ...],
        repeated: tuple[tuple[int, CompiledExpression], ...],
    ) -> None:
        self.checks = checks
        self.binds = binds
        self.late_checks = repeated

    def match(self, row: Row, targets: tuple[str, ...]) -> bool:
        for position, closure in self.checks:
            if targets[position] != closure(row):
                return False
        get = row[0].view.get
        for position, slot in self.binds:
            element = get(targets[position])
            if element is None:
                return False
            row[slot] = element
        return all(targets[position] == closure(row) for position, closure in self.late_checks)


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


def _register_id(slot: int) -> CompiledExpression:
    return lambda row: None if (element := row[slot]) is None else element.id


def _creation_order(element: Element) -> tuple[int, str]:
    """Elements in the order of their creation: ids count up."""
    return len(element.id), element.id


def _stop(row: Row) -> bool:
    return True


# --- the steps --------------------------------------------------------------------------------------------------


def _filter(condition: CompiledExpression, then: RowConsumer) -> RowConsumer:
    def step(row: Row) -> bool:
        return then(row) if condition(row) else False

    return step


def _check_type(slot: int, types: frozenset[str], then: RowConsumer) -> RowConsumer:
    def step(row: Row) -> bool:
        element = row[slot]
        return then(row) if element is not None and element.type in types else False

    return step


def _by_id(slot: int, types: frozenset[str], key: CompiledExpression, then: RowConsumer) -> RowConsumer:
    def step(row: Row) -> bool:
        id = key(row)
        element = row[0].view.get(id) if type(id) is str else None
        if element is None or element.type not in types:
            return False
        row[slot] = element
        return then(row)

    return step


def _lookup(
    slot: int,
    owner: str,
    attribute: str,
    key: CompiledExpression,
    types: frozenset[str] | None,
    nulls: RowConsumer,
    then: RowConsumer,
) -> RowConsumer:
    def step(row: Row) -> bool:
        value = key(row)
        if value is None:
            return nulls(row)
        seen = 0
        for element in row[0].view.lookup(owner, attribute, value):
            seen += 1
            if types is None or element.type in types:
                row[slot] = element
                if then(row):
                    row[0].charge(seen)
                    return True
        row[0].charge(seen)
        return False

    return step


def _scan_nulls(node: ResolvedNode, attribute: str, schema: Schema, then: RowConsumer) -> RowConsumer:
    """Two nulls are equal (§2.3.1), but no index holds them."""
    places = {name: (schema.nodes.get(name) or schema.edges[name]).layout[attribute] for name in node.types}
    slot = node.register

    def unset(row: Row) -> bool:
        element = row[slot]
        return then(row) if element.values[places[element.type]] is None else False

    return _scan(slot, node.types, unset)


def _scan(slot: int, types: tuple[str, ...], then: RowConsumer) -> RowConsumer:
    def step(row: Row) -> bool:
        context = row[0]
        seen = 0
        for element in context.view.scan(types):
            seen += 1
            if seen == _CHARGE_EVERY_CANDIDATES:
                context.charge(seen)
                seen = 0
            row[slot] = element
            if then(row):
                context.charge(seen)
                return True
        context.charge(seen)
        return False

    return step


def _orientations(edge: ResolvedEdge, candidate: Element) -> Iterable[tuple[str, ...]]:
    """The orders in which a candidate's targets may stand for the pattern's arguments."""
    targets = candidate.targets
    assert targets is not None
    if edge.symmetric and targets[0] != targets[1]:
        return targets, targets[::-1]
    return (targets,)


def _scan_edges(edge: ResolvedEdge, targets: EdgeTargetMatcher, then: RowConsumer) -> RowConsumer:
    slot = edge.register

    def step(row: Row) -> bool:
        context = row[0]
        seen = 0
        for candidate in context.view.scan(edge.edge_types):
            seen += 1
            if seen == _CHARGE_EVERY_CANDIDATES:
                context.charge(seen)
                seen = 0
            for ends in _orientations(edge, candidate):
                row[slot] = candidate
                if targets.match(row, ends) and then(row):
                    context.charge(seen)
                    return True
        context.charge(seen)
        return False

    return step


def _unfold(edge: ResolvedEdge, targets: EdgeTargetMatcher, then: RowConsumer) -> RowConsumer:
    slot, names = edge.register, frozenset(edge.edge_types)

    def step(row: Row) -> bool:
        candidate = row[slot]
        if candidate is None or candidate.type not in names:
            return False
        return any(targets.match(row, ends) and then(row) for ends in _orientations(edge, candidate))

    return step


def _expand_to_one(
    edge: ResolvedEdge, position: int, anchor: CompiledExpression, bind: tuple[int, int], then: RowConsumer
) -> RowConsumer:
    """The commonest step: from one bound end of an edge to its one free end."""
    slot, name = edge.register, edge.edge_types[0]
    other, target_slot = bind

    def step(row: Row) -> bool:
        id = anchor(row)
        if type(id) is not str:
            return False
        view = row[0].view
        get = view.get
        seen = 0
        for candidate in view.edges_at(name, position, id):
            seen += 1
            element = get(candidate.targets[other])
            if element is not None:
                row[slot] = candidate
                row[target_slot] = element
                if then(row):
                    row[0].charge(seen)
                    return True
        row[0].charge(seen)
        return False

    return step


def _expand(
    edge: ResolvedEdge,
    position: int,
    anchor: CompiledExpression,
    targets: EdgeTargetMatcher,
    then: RowConsumer,
) -> RowConsumer:
    slot = edge.register

    def step(row: Row) -> bool:
        id = anchor(row)
        if type(id) is not str:
            return False
        view = row[0].view
        seen = 0
        for name in edge.edge_types:
            for candidate in view.edges_at(name, position, id):
                seen += 1
                if targets.match(row, candidate.targets):
                    row[slot] = candidate
                    if then(row):
                        row[0].charge(seen)
                        return True
        row[0].charge(seen)
        return False

    return step


def _expand_symmetric(
    edge: ResolvedEdge,
    position: int,
    anchor: CompiledExpression,
    targets: EdgeTargetMatcher,
    then: RowConsumer,
) -> RowConsumer:
    slot, name = edge.register, edge.edge_types[0]

    def step(row: Row) -> bool:
        id = anchor(row)
        if type(id) is not str:
            return False
        view = row[0].view
        found = [(c, c.targets) for c in view.edges_at(name, position, id)]
        found += [
            (c, c.targets[::-1])
            for c in view.edges_at(name, 1 - position, id)
            if c.targets[0] != c.targets[1]
        ]
        row[0].charge(len(found))
        for candidate, ends in found:
            if targets.match(row, ends):
                row[slot] = candidate
                if then(row):
                    return True
        return False

    return step
