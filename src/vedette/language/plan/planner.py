"""Patterns ▸ plans: in which order to look for the elements of a pattern, and by which index.

The plan is greedy: begin with what the fewest elements can be (an id, an indexed value, the smallest type), go on along
edges from what is bound, and test every condition as soon as its variables are. A cross product happens only where the
pattern itself has no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from vedette.language.resolve.tree import (
    AttributeOf,
    Condition,
    EdgeElement,
    ExistsIn,
    IdOf,
    NodeElement,
    Operation,
    PathElement,
    PatternElement,
    PatternFold,
    ResolvedPattern,
    Slot,
    can_fail,
    slots_of,
    subexpressions,
)
from vedette.language.schema.model import Schema
from vedette.language.types import NULL

__all__ = [
    "ById",
    "ByIndex",
    "CheckType",
    "Expand",
    "Filter",
    "FollowPath",
    "Plan",
    "PlanContext",
    "Scan",
    "ScanEdges",
    "Statistics",
    "Step",
    "Unfold",
    "plan_pattern",
]

_SCAN_PENALTY = 1.0
_LAST_RESORT = 1e9
"""The penalty of a scan where following an edge is always better in the long run."""
_PATH_COST = 20.0


class Statistics(Protocol):
    """What the planner may know about sizes; the committed graph answers."""

    def count(self, types: Iterable[str]) -> int: ...
    def fan_out(self, edge: str, position: int) -> float: ...
    def selectivity(self, owner: str, attribute: str) -> float: ...


@dataclass(frozen=True, slots=True)
class ById:
    node: NodeElement
    key: Condition


@dataclass(frozen=True, slots=True)
class ByIndex:
    node: NodeElement
    owner: str
    attribute: str
    key: Condition


@dataclass(frozen=True, slots=True)
class Scan:
    node: NodeElement


@dataclass(frozen=True, slots=True)
class ScanEdges:
    edge: EdgeElement


@dataclass(frozen=True, slots=True)
class Expand:
    """Edges at the bound target `position`; other targets are checked or bound."""

    edge: EdgeElement
    position: int


@dataclass(frozen=True, slots=True)
class Unfold:
    """The edge itself is bound: its targets are checked or bound."""

    edge: EdgeElement


@dataclass(frozen=True, slots=True)
class FollowPath:
    path: PathElement
    forward: bool
    """From the source (True) or from the target; an unbound start ranges over the path's types."""


@dataclass(frozen=True, slots=True)
class CheckType:
    node: NodeElement


@dataclass(frozen=True, slots=True)
class Filter:
    condition: Condition


Step: TypeAlias = ById | ByIndex | Scan | ScanEdges | Expand | Unfold | FollowPath | CheckType | Filter


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, with the planner's estimate of candidates per incoming row for each."""

    pattern: ResolvedPattern
    steps: tuple[Step, ...]
    estimates: tuple[float, ...]
    bound_at: tuple[frozenset[int], ...]
    """Registers bound before each step."""
    outer: frozenset[int]
    """Registers that were bound before the pattern began."""


@dataclass(frozen=True, slots=True)
class PlanContext:
    schema: Schema
    statistics: Statistics
    has_index: Callable[[str, str], bool]
    ensure_index: Callable[[str, str], None]
    """Makes an index on (owner, attribute): joins by value must not be cross products."""


def plan_pattern(
    pattern: ResolvedPattern,
    context: PlanContext,
    *,
    bound: frozenset[int] = frozenset(),
    outer: frozenset[int] = frozenset(),
    enduring: bool = False,
) -> Plan:
    """The plan for a pattern whose registers `bound` hold elements already; `outer` ones belong to someone else.

    `enduring`: it will be used while the graph grows, so what hangs together with the bound ones is followed from
    there, however few elements there are to scan today.
    """
    return _Planner(pattern, context, bound | outer, outer, _LAST_RESORT if enduring else _SCAN_PENALTY).run()


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
        self.outer = outer
        self.scan_penalty = scan_penalty
        self.known: dict[int, frozenset[str]] = {}
        """Types that a bound register can have, where an edge guarantees it."""
        self.loose: set[int] = set(bound - outer)
        """Registers bound by a path, which may have no edges at all, or by whoever anchors the pattern: of any type."""
        self.elements = list(pattern.elements)
        self.waiting = [(c, slots_of(c)) for c in pattern.where if not can_fail(c)]
        self.failing = [condition for condition in pattern.where if can_fail(condition)]
        """Conditions that may raise: tested last, in the order written, for AND stops at the first false (§2.3.4)."""
        self.steps: list[tuple[Step, float, frozenset[int]]] = []

    def run(self) -> Plan:
        self._filters()
        while self.elements:
            cost, step, element = min(
                (self._best(element) for element in self.elements), key=lambda choice: choice[0]
            )
            self._take(step, cost, element)
            self._filters()
        self.steps += [(Filter(condition), 0.0, frozenset(self.bound)) for condition in self.failing]
        return Plan(
            self.pattern,
            tuple(step for step, _, _ in self.steps),
            tuple(cost for _, cost, _ in self.steps),
            tuple(bound for _, _, bound in self.steps),
            self.outer,
        )

    # --- choosing ---------------------------------------------------------------------------------------------

    def _best(self, element: PatternElement) -> tuple[float, Step, PatternElement]:
        if isinstance(element, NodeElement):
            return (*self._node(element), element)
        if isinstance(element, EdgeElement):
            return (*self._edge(element), element)
        return (*self._path(element), element)

    def _node(self, node: NodeElement) -> tuple[float, Step]:
        if node.slot in self.bound:
            return 0.0, CheckType(node)
        size = float(self.context.statistics.count(node.types))
        if node.implicit:
            return 2.0 * size + 1e12, Scan(node)
        best: tuple[float, Step] = (size + self.scan_penalty, Scan(node))
        for condition, _ in self.waiting:
            keyed = self._keyed(node, condition)
            if keyed is not None and keyed[0] < best[0]:
                best = keyed
        return best

    def _keyed(self, node: NodeElement, condition: Condition) -> tuple[float, Step] | None:
        """How the condition `node.attr = key` narrows the node, if it does and the key is known by now."""
        if not isinstance(condition, Operation) or condition.op != "=":
            return None
        for side, key in ((condition.left, condition.right), (condition.right, condition.left)):
            if not slots_of(key) <= self.bound or key.type == NULL:
                continue
            if isinstance(side, (IdOf, Slot)) and _slot_of(side) == node.slot:
                return 0.5, ById(node, key)
            if isinstance(side, AttributeOf) and _slot_of(side) == node.slot:
                found = self._indexed(node, side, key)
                if found is not None:
                    return found
        return None

    def _indexed(self, node: NodeElement, side: AttributeOf, key: Condition) -> tuple[float, Step] | None:
        if key.type != side.type and not (key.type.is_numeric and side.type.is_numeric):
            return None
        if side.type.kind == "Union":  # an index takes true and 1 for the same key
            return None
        attribute = self._declaration(node, side.name)
        if attribute is None:
            return None
        owner, declared = attribute
        indexed = declared or self.context.has_index(owner, side.name)
        joins = bool(slots_of(key))
        if not indexed and not joins:
            return None
        if not indexed:
            self.context.ensure_index(owner, side.name)
        cost = self.context.statistics.selectivity(owner, side.name)
        return cost, ByIndex(node, owner, side.name, key)

    def _declaration(self, node: NodeElement, name: str) -> tuple[str, bool] | None:
        """The one type that declares the attribute for all the node's types, and whether it is indexed."""
        schema = self.context.schema
        owners = set()
        for type_name in node.types:
            holder = schema.nodes.get(type_name) or schema.edges.get(type_name)
            attribute = holder.attributes.get(name) if holder is not None else None
            if holder is None or attribute is None or holder.protected:
                return None
            owners.add((attribute.owner, attribute.indexed or attribute.unique))
        return owners.pop() if len(owners) == 1 else None

    def _edge(self, edge: EdgeElement) -> tuple[float, Step]:
        if edge.slot in self.bound:
            return 0.1, Unfold(edge)
        statistics = self.context.statistics
        choices: list[tuple[float, Step]] = []
        bound = [p for p, target in enumerate(edge.targets) if self._is_known(target)]
        for position in bound:
            fan_out = max(statistics.fan_out(name, position) for name in edge.edges) if edge.edges else 0.0
            if edge.symmetric:
                fan_out += statistics.fan_out(edge.edges[0], 1 - position)
            cost = fan_out if len(bound) < len(edge.targets) else min(fan_out, 1.0)
            choices.append((cost, Expand(edge, position)))
        if choices:
            return min(choices, key=lambda choice: choice[0])
        return float(statistics.count(edge.edges)) + self.scan_penalty + 0.5, ScanEdges(edge)

    def _path(self, path: PathElement) -> tuple[float, Step]:
        source, target = self._is_known(path.source), self._is_known(path.target)
        if source or target:
            return (_PATH_COST if not (source and target) else 5.0), FollowPath(path, source)
        size = float(self.context.statistics.count(path.source_types))
        return 1e6 + self.scan_penalty + size, FollowPath(path, True)

    def _is_known(self, target: int | Condition | None) -> bool:
        if target is None:
            return False
        if isinstance(target, int):
            return target in self.bound
        return slots_of(target) <= self.bound

    # --- taking -----------------------------------------------------------------------------------------------

    def _take(self, step: Step, cost: float, element: PatternElement) -> None:
        self.elements.remove(element)
        needless = isinstance(step, CheckType) and self._guaranteed(step.node)
        if not needless:
            self.steps.append((step, cost, frozenset(self.bound)))
        if isinstance(element, NodeElement):
            self.bound.add(element.slot)
            self.known[element.slot] = frozenset(element.types)
        elif isinstance(element, EdgeElement):
            self.bound.add(element.slot)
            self._learn(element)
        else:
            ends = {end for end in (element.source, element.target) if isinstance(end, int)}
            self.loose |= ends - self.bound
            self.bound |= ends

    def _guaranteed(self, node: NodeElement) -> bool:
        """Whether what bound the register can have bound nothing but elements of the node's types."""
        known = self.known.get(node.slot)
        if known is not None:
            return known <= frozenset(node.types)
        return node.implicit and node.slot not in self.loose

    def _learn(self, edge: EdgeElement) -> None:
        schema = self.context.schema
        for position, target in enumerate(edge.targets):
            if isinstance(target, int) and target not in self.bound:
                self.bound.add(target)
                if len(edge.edges) == 1:
                    type_ = schema.edges[edge.edges[0]].parameters[position].type
                    if type_.kind == "Node":
                        self.known[target] = frozenset(schema.concrete(type_.names))

    def _filters(self) -> None:
        """Test what can be tested by now: a condition may read an element only when its type is certain."""
        unsure = {
            element.slot
            for element in self.elements
            if isinstance(element, NodeElement) and not self._guaranteed(element)
        }
        ready = [(c, slots) for c, slots in self.waiting if slots <= self.bound - unsure]
        self.waiting = [item for item in self.waiting if item not in ready]
        for condition, _ in sorted(ready, key=lambda item: _weight(item[0])):
            if not self._answered(condition):
                self.steps.append((Filter(condition), 0.0, frozenset(self.bound)))

    def _answered(self, condition: Condition) -> bool:
        """Whether the step just taken looked the condition up in an index, so that it need not be tested again."""
        last = self.steps[-1][0] if self.steps else None
        if (
            not isinstance(last, (ById, ByIndex))
            or not isinstance(condition, Operation)
            or condition.op != "="
        ):
            return False
        for side, key in ((condition.left, condition.right), (condition.right, condition.left)):
            if key is last.key and _slot_of(side) == last.node.slot:
                if isinstance(last, ById):
                    return isinstance(side, (IdOf, Slot))
                return isinstance(side, AttributeOf) and side.name == last.attribute
        return False


def _slot_of(condition: Condition) -> int | None:
    if isinstance(condition, (IdOf, AttributeOf)):
        condition = condition.base
    return condition.slot if isinstance(condition, Slot) else None


def _weight(condition: Condition) -> int:
    """Cheap conditions first: nested patterns last."""
    return sum(50 if isinstance(part, (ExistsIn, PatternFold)) else 1 for part in subexpressions(condition))
