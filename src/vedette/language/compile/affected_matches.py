"""Which matches of a pattern a set of changes can concern: the heart of rules, constraints and watches.

A match can come, go or look different only if the changes touch an element of it, or an element that a nested pattern
(EXISTS, a pattern aggregate) or a followed reference looks at. So we begin at every touched element, bind it to each
place of the pattern where it fits, and complete the match from there: the cost follows the change, not the graph.

Nested patterns are anchored too, but what they looked at may be gone. So their elements are joined by structure only,
on a view that still shows what the changes deleted, to find the outer bindings they may concern; each is then verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vedette.element import Element, View
from vedette.language.compile import paths
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.patterns import PatternCompiler, symmetric_pairs
from vedette.language.compile.steps import RowConsumer
from vedette.language.compile.union_view import ElementChange, UnionView
from vedette.language.plan.steps import ScanEdges, ScanNodes
from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import child_expressions, walk_expression
from vedette.language.resolve.tree import (
    ResolvedEdge,
    ResolvedExpression,
    ResolvedNode,
    ResolvedPart,
    ResolvedPath,
    ResolvedPattern,
)

__all__ = ["AffectedMatchFinder"]

_Anchor = Callable[[ExecutionContext, Element, "_ChangeSet", dict[Any, Row]], None]
_Places = frozenset[int] | None
"""Of the attributes that matter to an anchor; None: all do."""


class _ChangeSet:
    """The changes of which one is looked at, and the view with both their sides for those who need it."""

    __slots__ = ("_changes", "_union", "_view")

    def __init__(self, view: View, changes: Sequence[ElementChange]) -> None:
        self._view, self._changes = view, changes
        self._union: UnionView | None = None

    @property
    def union(self) -> UnionView:
        if self._union is None:
            self._union = UnionView(self._view, self._changes)
        return self._union


def _differ(before: Element, after: Element, places: frozenset[int]) -> bool:
    """Whether an attribute at one of these places changed, or the type has grown since."""
    old, new = before.values, after.values
    if len(old) != len(new):
        return True
    for place in places:  # noqa: SIM110 - asked for every change
        if old[place] is not new[place]:
            return True
    return False


class AffectedMatchFinder:
    """Finds, for one pattern, the matches in a view that given changes can concern. A superset is fine, a miss is not.

    `conditions` are further conditions on the pattern's variables (what a constraint demands, what a watch returns):
    what they look at counts too, but they are not tested here.
    """

    def __init__(
        self,
        pattern: ResolvedPattern,
        conditions: Sequence[ResolvedExpression],
        compiler: PatternCompiler,
        size: int,
        *,
        identify_unnamed: bool = False,
        canonical_orientation: bool = True,
        full_scan_types: Iterable[str] = (),
        relevant_attributes: Mapping[int, Mapping[str, frozenset[int]] | None] | None = None,
    ) -> None:
        """Not `canonical`: a symmetric edge yields a match in each order that fits, for others to choose from.

        `wide` are further types whose change makes every match a candidate. `attention` names, by register and type,
        the places of the only attributes that anybody looks at: an element that has only others changed stays aside.
        """
        self._compiler = compiler
        self._size = size
        self._pattern = pattern
        self._canonical = canonical_orientation
        self._pairs = symmetric_pairs(pattern, frozenset())
        bound = [e for e in pattern.elements if isinstance(e, (ResolvedNode, ResolvedEdge))]
        self._registers = tuple(e.register for e in bound)
        self.variables = tuple(e.register for e in bound if identify_unnamed or e.name is not None)
        """Registers whose elements identify a match; with `identify_unnamed` also those of unnamed parts."""
        self.may_find_duplicates = len(self.variables) < len(self._registers)
        """Whether several ways to match may be one identity, since not everything has a name."""
        self._relevant_attributes = relevant_attributes
        self.anchors: dict[str, list[tuple[_Anchor, _Places]]] = {}
        self.full_scan_types = set(full_scan_types)
        """Types whose change makes every match a candidate: the pattern has no edge or key to follow from there."""
        self._check = self._chain(pattern, frozenset(self.variables))
        self._everything = self._chain(pattern, frozenset())
        for element in pattern.elements:
            self._anchor_outer(element)
        for condition in (*pattern.where, *conditions):
            self._anchor_nested(condition, ())
            self._anchor_followed(condition)

    # --- finding ----------------------------------------------------------------------------------------------

    def is_affected_by_types(self, types: Iterable[str]) -> bool:
        return any(name in self.anchors or name in self.full_scan_types for name in types)

    def find(self, context: ExecutionContext, changes: Sequence[ElementChange]) -> list[Row]:
        """Rows of matches in the context's view, one per identity."""
        return list(self._found(context, changes, self._starts(changes)).values())

    def find_before_and_after(
        self, before: ExecutionContext, after: ExecutionContext, changes: Sequence[ElementChange]
    ) -> tuple[dict[Any, Row], dict[Any, Row]]:
        """Identity ▸ row in the views on both sides of the changes."""
        starts = self._starts(changes)
        return self._found(before, changes, starts), self._found(after, changes, starts)

    def _starts(self, changes: Sequence[ElementChange]) -> list[tuple[_Anchor, Element]] | None:
        """From where to look for matches: the elements that may be part of some. None: anywhere."""
        starts = []
        for before, after in changes:
            touched: Element = after or before  # type: ignore[assignment]
            if touched.type in self.full_scan_types:
                return None
            for anchor, places in self.anchors.get(touched.type, ()):
                if places is None or before is None or after is None or _differ(before, after, places):
                    starts.append((anchor, touched))
        return starts

    def _found(
        self,
        context: ExecutionContext,
        changes: Sequence[ElementChange],
        starts: list[tuple[_Anchor, Element]] | None,
    ) -> dict[Any, Row]:
        found: dict[Any, Row] = {}
        if starts is None:
            self._run(context, self._everything, (), found)
        elif starts:
            changed = _ChangeSet(context.view, changes)
            for anchor, touched in starts:
                anchor(context, touched, changed, found)
        return found

    def find_all(self, context: ExecutionContext) -> list[Row]:
        """Rows of all matches in the context's view, one per identity."""
        return list(self._found(context, (), None).values())

    def reevaluate(self, context: ExecutionContext, row: Row) -> Row | None:
        """The same match as it is in the context's view now, or None when it does not hold any more."""
        found: dict[Any, Row] = {}
        self._verify(context, row, found)
        return next(iter(found.values()), None)

    def identity_of(self, row: Row) -> tuple[str, ...]:
        return tuple([row[register].id for register in self.variables])

    # --- anchors ----------------------------------------------------------------------------------------------

    def _anchor_outer(self, element: ResolvedPart) -> None:
        if isinstance(element, ResolvedPath):
            by_path = self._path_anchor(element, self._pattern, verify=bool(self._pairs))
            self._add((element.edge,), by_path)
            return
        chain = self._chain(self._pattern, frozenset({element.register}))
        register = element.register

        def anchor(
            context: ExecutionContext, touched: Element, changed: _ChangeSet, found: dict[Any, Row]
        ) -> None:
            present = context.view.get(touched.id)
            if present is not None:
                self._run(context, chain, ((register, present),), found)

        for name in _types(element):
            self._add((name,), anchor, self._places(register, name))

    def _places(self, register: int, type_name: str) -> _Places:
        if self._relevant_attributes is None or self._pairs:
            return None
        attended = self._relevant_attributes.get(register, {})
        return None if attended is None else attended.get(type_name, frozenset())

    def _anchor_nested(self, condition: ResolvedExpression, above: tuple[ResolvedPart, ...]) -> None:
        for nested in _nested_patterns(condition):
            plain = tuple(c for c in self._pattern.where if not any(_nested_patterns(c)))
            joint = ResolvedPattern((*self._pattern.elements, *above, *nested.elements), plain)
            for element in nested.elements:
                self._anchor_inner(element, joint)
            for inner in nested.where:
                self._anchor_nested(inner, (*above, *nested.elements))

    def _anchor_inner(self, element: ResolvedPart, joint: ResolvedPattern) -> None:
        if isinstance(element, ResolvedPath):
            self._add((element.edge,), self._path_anchor(element, joint, verify=True))
            return
        register = element.register
        own = frozenset(self._registers)
        plan_start = len(self._compiler.plans)
        chain = self._compiler.compile_pattern(
            joint,
            self._collect_candidate,
            bound=frozenset({register}),
            canonical_orientation=False,
            long_lived=True,
        )
        steps = self._compiler.plans[plan_start].steps
        if any(isinstance(s, (ScanNodes, ScanEdges)) and _bound_register(s) in own for s in steps):
            self.full_scan_types.update(_types(element))
            return

        def anchor(
            context: ExecutionContext, touched: Element, changed: _ChangeSet, found: dict[Any, Row]
        ) -> None:
            self._candidates(context, changed.union, chain, ((register, touched),), found)

        self._add(_types(element), anchor)

    def _path_anchor(self, path: ResolvedPath, pattern: ResolvedPattern, *, verify: bool) -> _Anchor:
        """A changed edge concerns the pairs whose paths may use it: all that reach it, all that it reaches."""
        if path.min_depth == 0 and path.source is None and path.target is None:
            self.full_scan_types.update(path.source_types)  # a path of no edges needs no more than an element
        register = path.source if isinstance(path.source, int) else path.target
        backward = isinstance(path.source, int)
        known = frozenset({register}) if isinstance(register, int) else frozenset()
        sink = self._collect_candidate if verify else self._collect
        canonical_orientation = self._canonical and not verify
        chain = self._compiler.compile_pattern(
            pattern, sink, bound=known, canonical_orientation=canonical_orientation, long_lived=True
        )

        def anchor(
            context: ExecutionContext, touched: Element, changed: _ChangeSet, found: dict[Any, Row]
        ) -> None:
            union = changed.union
            for preset in self._path_presets(path, register, backward, touched, union, context):
                if verify:
                    self._candidates(context, union, chain, preset, found)
                else:
                    self._run(context, chain, preset, found)

        return anchor

    def _path_presets(
        self,
        path: ResolvedPath,
        register: Any,
        backward: bool,
        edge: Element,
        union: UnionView,
        context: ExecutionContext,
    ) -> Iterator[tuple[tuple[int, Element], ...]]:
        if not isinstance(register, int):
            yield ()
            return
        assert edge.targets is not None
        starts = edge.targets if path.symmetric else (edge.targets[0 if backward else 1],)
        whole = ResolvedPath(
            path.edge, None, None, (), frozenset(), 0, path.max_depth, path.symmetric, depth_is_explicit=True
        )
        ids = {
            id for start in starts for id in paths.reachable_ids(whole, not backward, start, union, context)
        }
        for id in sorted(ids):
            element = union.get(id)
            if element is not None:
                yield ((register, element),)

    def _anchor_followed(self, condition: ResolvedExpression) -> None:
        """`t.owner.name` looks at an element that is no part of the pattern: any change of its type concerns all."""
        for part in walk_expression(condition):
            base = getattr(part, "base", None)
            if base is None or isinstance(base, resolved.VariableRef):
                continue
            if isinstance(part, (resolved.AttributeAccess, resolved.DynamicAttributeAccess)):
                self.full_scan_types.update(part.index_by_type)
            else:
                schema = self._compiler.context.schema
                self.full_scan_types.update(schema.nodes, schema.edges)

    def _add(self, types: Iterable[str], anchor: _Anchor, places: _Places = None) -> None:
        for name in types:
            self.anchors.setdefault(name, []).append((anchor, places))

    # --- running ----------------------------------------------------------------------------------------------

    def _chain(self, pattern: ResolvedPattern, bound: frozenset[int]) -> RowConsumer:
        return self._compiler.compile_pattern(
            pattern, self._collect, bound=bound, canonical_orientation=self._canonical, long_lived=bool(bound)
        )

    def _collect(self, row: Row) -> bool:
        row[0].sink.setdefault(self.identity_of(row), row.copy())
        return False

    def _collect_candidate(self, row: Row) -> bool:
        row[0].sink.setdefault(tuple([row[register].id for register in self._registers]), row.copy())
        return False

    def _run(
        self,
        context: ExecutionContext,
        chain: RowConsumer,
        initial_registers: Iterable[tuple[int, Element]],
        found: dict[Any, Row],
    ) -> None:
        row: Row = [None] * self._size
        row[0] = context
        for register, element in initial_registers:
            row[register] = element
        kept, context.sink = context.sink, found
        try:
            chain(row)
        finally:
            context.sink = kept

    def _candidates(
        self,
        context: ExecutionContext,
        union: UnionView,
        chain: RowConsumer,
        initial_registers: Iterable[tuple[int, Element]],
        found: dict[Any, Row],
    ) -> None:
        candidates: dict[Any, Row] = {}
        view, context.view = context.view, union
        try:
            self._run(context, chain, initial_registers, candidates)
        finally:
            context.view = view
        for row in candidates.values():
            self._verify(context, row, found)
            for turned in self._swapped_orientations(row):
                self._verify(context, turned, found)

    def _swapped_orientations(self, row: Row) -> Iterator[Row]:
        """Matches that count only while this one does not: the other orders of symmetric edges."""
        for _, first, second in self._pairs:
            turned = row.copy()
            turned[first], turned[second] = row[second], row[first]
            yield turned

    def _verify(self, context: ExecutionContext, row: Row, found: dict[Any, Row]) -> None:
        initial_registers = []
        for register in self.variables:
            present = context.view.get(row[register].id)
            if present is None:
                return
            initial_registers.append((register, present))
        self._run(context, self._check, initial_registers, found)


def _types(element: ResolvedPart) -> tuple[str, ...]:
    match element:
        case ResolvedNode():
            return element.types
        case ResolvedEdge():
            return element.edge_types
        case ResolvedPath():
            return (element.edge,)


def _nested_patterns(condition: ResolvedExpression) -> Iterator[ResolvedPattern]:
    """Patterns directly inside the condition, not those inside their conditions in turn."""
    if isinstance(condition, (resolved.ResolvedExists, resolved.ResolvedPatternAggregate)):
        yield condition.pattern
        return
    for part in child_expressions(condition):
        yield from _nested_patterns(part)


def _bound_register(step: ScanNodes | ScanEdges) -> int:
    return step.node.register if isinstance(step, ScanNodes) else step.edge.register
