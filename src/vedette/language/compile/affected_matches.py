"""Find the matches of a pattern that a set of changes may have added, removed or altered.

Rules, constraints and watches ask this at every commit. The cost follows the number of changed elements:

1. A changed element is bound to every part of the pattern whose type it has (an anchor); the match is completed
   from there.
2. An EXISTS or pattern aggregate may have matched an element that is now deleted. Its anchors run on a `UnionView`,
   which shows the graph before and after the changes at once. They follow edges and ignore the nested conditions.
   Every outer match found this way is a candidate, which is then re-evaluated on the current view.
3. Where no edge or key leads from the changed element back to the pattern, every match is a candidate.

The result may contain unaffected matches. It never misses an affected one.
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

__all__ = ["AffectedMatchFinder", "Identity", "RelevantAttributes"]

Identity = tuple[str, ...]
"""The ids of the elements that identify a match."""

RelevantAttributes = Mapping[int, Mapping[str, frozenset[int]] | None]
"""By register and type, the indexes of the attributes that matter. None for a register: all attributes matter."""

_Anchor = Callable[[ExecutionContext, Element, "_ChangeSet", dict[Identity, Row]], None]
"""Completes matches from one changed element and adds them to the dictionary."""

_AttributeIndexes = frozenset[int] | None
"""The attributes whose change an anchor must look at; None for all."""


class _ChangeSet:
    """The changes of one call, with a `UnionView` that is built when the first anchor needs it."""

    __slots__ = ("_changes", "_union", "_view")

    def __init__(self, view: View, changes: Sequence[ElementChange]) -> None:
        self._view, self._changes = view, changes
        self._union: UnionView | None = None

    @property
    def union(self) -> UnionView:
        if self._union is None:
            self._union = UnionView(self._view, self._changes)
        return self._union


def _differ(before: Element, after: Element, indexes: frozenset[int]) -> bool:
    """True if one of these attributes changed, or if the type gained attributes since `before` was stored."""
    old, new = before.values, after.values
    if len(old) != len(new):
        return True
    for index in indexes:  # noqa: SIM110 - runs for every change, and a loop is faster than any()
        if old[index] is not new[index]:
            return True
    return False


class AffectedMatchFinder:
    """The anchors of one pattern, compiled once.

    A call replaces `context.sink` and, for nested patterns, `context.view` until it returns. The engine lock must be
    held.
    """

    def __init__(
        self,
        pattern: ResolvedPattern,
        expressions: Sequence[ResolvedExpression],
        compiler: PatternCompiler,
        register_count: int,
        *,
        identify_unnamed: bool = False,
        canonical_orientation: bool = True,
        full_scan_types: Iterable[str] = (),
        relevant_attributes: RelevantAttributes | None = None,
    ) -> None:
        """`expressions` are read but not tested here: a constraint's condition, a watch's RETURN.

        identify_unnamed: parts without a variable belong to a match's identity.
        canonical_orientation: report a match over a symmetric edge once; False reports both orientations.
        full_scan_types: a change of one of these types makes every match a candidate.
        relevant_attributes: a change of other attributes is skipped. None means that every attribute matters.
        """
        self._compiler = compiler
        self._register_count = register_count
        self._pattern = pattern
        self._canonical_orientation = canonical_orientation
        self._symmetric_pairs = symmetric_pairs(pattern, frozenset())
        bound = [e for e in pattern.elements if isinstance(e, (ResolvedNode, ResolvedEdge))]
        self._registers = tuple(e.register for e in bound)
        self.variables = tuple(e.register for e in bound if identify_unnamed or e.name is not None)
        """Registers whose elements identify a match."""
        self.may_find_duplicates = len(self.variables) < len(self._registers)
        """True if several rows may have one identity, because a part has no variable."""
        self._relevant_attributes = relevant_attributes
        self.anchors: dict[str, list[tuple[_Anchor, _AttributeIndexes]]] = {}
        """By the type of the changed element."""
        self.full_scan_types = set(full_scan_types)
        """Types whose change makes every match a candidate: no edge or key leads back to the pattern."""
        self._check = self._compile(pattern, frozenset(self.variables))
        self._search_all = self._compile(pattern, frozenset())
        for element in pattern.elements:
            self._anchor_part(element)
        for expression in (*pattern.where, *expressions):
            self._anchor_nested_patterns(expression, ())
            self._add_referenced_types(expression)

    # --- finding ----------------------------------------------------------------------------------------------

    def is_affected_by_types(self, types: Iterable[str]) -> bool:
        """True if a change of an element of one of these types can affect a match."""
        return any(name in self.anchors or name in self.full_scan_types for name in types)

    def find(self, context: ExecutionContext, changes: Sequence[ElementChange]) -> list[Row]:
        """Return the affected matches in `context.view`, one row per identity."""
        return list(self._find(context, changes, self._select_anchors(changes)).values())

    def find_before_and_after(
        self, before: ExecutionContext, after: ExecutionContext, changes: Sequence[ElementChange]
    ) -> tuple[dict[Identity, Row], dict[Identity, Row]]:
        """Return the affected matches in both views, by identity. The caller compares them to get the delta."""
        anchors = self._select_anchors(changes)
        return self._find(before, changes, anchors), self._find(after, changes, anchors)

    def _select_anchors(self, changes: Sequence[ElementChange]) -> list[tuple[_Anchor, Element]] | None:
        """Return the anchors to run, each with its changed element; None if every match is a candidate."""
        selected = []
        for before, after in changes:
            changed: Element = after or before  # type: ignore[assignment]
            if changed.type in self.full_scan_types:
                return None
            for anchor, indexes in self.anchors.get(changed.type, ()):
                if indexes is None or before is None or after is None or _differ(before, after, indexes):
                    selected.append((anchor, changed))
        return selected

    def _find(
        self,
        context: ExecutionContext,
        changes: Sequence[ElementChange],
        anchors: list[tuple[_Anchor, Element]] | None,
    ) -> dict[Identity, Row]:
        found: dict[Identity, Row] = {}
        if anchors is None:
            self._run(context, self._search_all, (), found)
        elif anchors:
            change_set = _ChangeSet(context.view, changes)
            for anchor, changed in anchors:
                anchor(context, changed, change_set, found)
        return found

    def find_all(self, context: ExecutionContext) -> list[Row]:
        """Return every match in `context.view`, one row per identity. Costs a full search."""
        return list(self._find(context, (), None).values())

    def reevaluate(self, context: ExecutionContext, row: Row) -> Row | None:
        """Return the match of `row` with the current versions of its elements, or None if it no longer matches."""
        found: dict[Identity, Row] = {}
        self._verify(context, row, found)
        return next(iter(found.values()), None)

    def identity_of(self, row: Row) -> Identity:
        return tuple([row[register].id for register in self.variables])

    # --- anchors ----------------------------------------------------------------------------------------------

    def _anchor_part(self, element: ResolvedPart) -> None:
        """Add the anchors of one part of the pattern itself."""
        if isinstance(element, ResolvedPath):
            by_path = self._path_anchor(element, self._pattern, verify=bool(self._symmetric_pairs))
            self._add((element.edge,), by_path)
            return
        search = self._compile(self._pattern, frozenset({element.register}))
        register = element.register

        def anchor(
            context: ExecutionContext, changed: Element, changes: _ChangeSet, found: dict[Identity, Row]
        ) -> None:
            current = context.view.get(changed.id)
            if current is not None:
                self._run(context, search, ((register, current),), found)

        for name in _types(element):
            self._add((name,), anchor, self._relevant_indexes(register, name))

    def _relevant_indexes(self, register: int, type_name: str) -> _AttributeIndexes:
        # With a symmetric edge, any attribute may decide which orientation is reported.
        if self._relevant_attributes is None or self._symmetric_pairs:
            return None
        by_type = self._relevant_attributes.get(register, {})
        return None if by_type is None else by_type.get(type_name, frozenset())

    def _anchor_nested_patterns(
        self, expression: ResolvedExpression, enclosing: tuple[ResolvedPart, ...]
    ) -> None:
        """Add the anchors of the patterns inside an expression; `enclosing` are the parts of patterns around it."""
        for nested in _nested_patterns(expression):
            plain = tuple(c for c in self._pattern.where if not any(_nested_patterns(c)))
            joined = ResolvedPattern((*self._pattern.elements, *enclosing, *nested.elements), plain)
            for element in nested.elements:
                self._anchor_nested_part(element, joined)
            for inner in nested.where:
                self._anchor_nested_patterns(inner, (*enclosing, *nested.elements))

    def _anchor_nested_part(self, element: ResolvedPart, joined: ResolvedPattern) -> None:
        """Add the anchor of one part of a nested pattern; `joined` connects it with the outer pattern."""
        if isinstance(element, ResolvedPath):
            self._add((element.edge,), self._path_anchor(element, joined, verify=True))
            return
        register = element.register
        own = frozenset(self._registers)
        compiled = self._compiler.compile_pattern(
            joined,
            self._collect_candidate,
            bound=frozenset({register}),
            canonical_orientation=False,
            long_lived=True,
        )
        if any(
            isinstance(s, (ScanNodes, ScanEdges)) and _scanned_register(s) in own for s in compiled.plan.steps
        ):
            # No edge or key leads back: the search would scan the outer pattern for every changed element.
            self.full_scan_types.update(_types(element))
            return
        search = compiled.run

        def anchor(
            context: ExecutionContext, changed: Element, changes: _ChangeSet, found: dict[Identity, Row]
        ) -> None:
            self._verify_candidates(context, changes.union, search, ((register, changed),), found)

        self._add(_types(element), anchor)

    def _path_anchor(self, path: ResolvedPath, pattern: ResolvedPattern, *, verify: bool) -> _Anchor:
        """Return the anchor of a transitive edge.

        A changed edge affects every pair whose path may contain it: all elements that reach it, and all that it
        reaches. `verify` treats what is found as candidates.
        """
        if path.min_depth == 0 and path.source is None and path.target is None:
            self.full_scan_types.update(path.source_types)  # a path of zero edges exists at every element
        register = path.source if isinstance(path.source, int) else path.target
        backward = isinstance(path.source, int)
        bound = frozenset({register}) if isinstance(register, int) else frozenset()
        search = self._compiler.compile_pattern(
            pattern,
            self._collect_candidate if verify else self._collect,
            bound=bound,
            canonical_orientation=self._canonical_orientation and not verify,
            long_lived=True,
        ).run

        def anchor(
            context: ExecutionContext, changed: Element, changes: _ChangeSet, found: dict[Identity, Row]
        ) -> None:
            union = changes.union
            for initial in self._path_ends(path, register, backward, changed, union, context):
                if verify:
                    self._verify_candidates(context, union, search, initial, found)
                else:
                    self._run(context, search, initial, found)

        return anchor

    def _path_ends(
        self,
        path: ResolvedPath,
        register: Any,
        backward: bool,
        edge: Element,
        union: UnionView,
        context: ExecutionContext,
    ) -> Iterator[tuple[tuple[int, Element], ...]]:
        """Yield initial registers: each element whose path may lead over `edge`, bound to `register`."""
        if not isinstance(register, int):
            yield ()
            return
        assert edge.targets is not None
        starts = edge.targets if path.symmetric else (edge.targets[0 if backward else 1],)
        any_length = ResolvedPath(
            path.edge, None, None, (), frozenset(), 0, path.max_depth, path.symmetric, depth_is_explicit=True
        )
        ids = {
            id
            for start in starts
            for id in paths.reachable_ids(any_length, not backward, start, union, context)
        }
        for id in sorted(ids):
            element = union.get(id)
            if element is not None:
                yield ((register, element),)

    def _add_referenced_types(self, expression: ResolvedExpression) -> None:
        """`t.owner.name` reads an element that is not part of the pattern: a change of its type needs a full scan."""
        for part in walk_expression(expression):
            base = getattr(part, "base", None)
            if base is None or isinstance(base, resolved.VariableRef):
                continue
            if isinstance(part, (resolved.AttributeAccess, resolved.DynamicAttributeAccess)):
                self.full_scan_types.update(part.index_by_type)
            else:
                schema = self._compiler.context.schema
                self.full_scan_types.update(schema.nodes, schema.edges)

    def _add(self, types: Iterable[str], anchor: _Anchor, indexes: _AttributeIndexes = None) -> None:
        for name in types:
            self.anchors.setdefault(name, []).append((anchor, indexes))

    # --- running ----------------------------------------------------------------------------------------------

    def _compile(self, pattern: ResolvedPattern, bound: frozenset[int]) -> RowConsumer:
        return self._compiler.compile_pattern(
            pattern,
            self._collect,
            bound=bound,
            canonical_orientation=self._canonical_orientation,
            long_lived=bool(bound),
        ).run

    def _collect(self, row: Row) -> bool:
        row[0].sink.setdefault(self.identity_of(row), row.copy())
        return False

    def _collect_candidate(self, row: Row) -> bool:
        row[0].sink.setdefault(tuple([row[register].id for register in self._registers]), row.copy())
        return False

    def _run(
        self,
        context: ExecutionContext,
        search: RowConsumer,
        initial_registers: Iterable[tuple[int, Element]],
        found: dict[Identity, Row],
    ) -> None:
        row: Row = [None] * self._register_count
        row[0] = context
        for register, element in initial_registers:
            row[register] = element
        previous, context.sink = context.sink, found
        try:
            search(row)
        finally:
            context.sink = previous

    def _verify_candidates(
        self,
        context: ExecutionContext,
        union: UnionView,
        search: RowConsumer,
        initial_registers: Iterable[tuple[int, Element]],
        found: dict[Identity, Row],
    ) -> None:
        """Run the search on `union`, then re-evaluate every candidate on `context.view`."""
        candidates: dict[Identity, Row] = {}
        view, context.view = context.view, union
        try:
            self._run(context, search, initial_registers, candidates)
        finally:
            context.view = view
        for row in candidates.values():
            self._verify(context, row, found)
            for swapped in self._swapped_orientations(row):
                self._verify(context, swapped, found)

    def _swapped_orientations(self, row: Row) -> Iterator[Row]:
        """Yield the row with each symmetric edge swapped: a match that is reported only if this one is not."""
        for _, first, second in self._symmetric_pairs:
            swapped = row.copy()
            swapped[first], swapped[second] = row[second], row[first]
            yield swapped

    def _verify(self, context: ExecutionContext, row: Row, found: dict[Identity, Row]) -> None:
        """Add the match with the identity of `row` to `found` if it exists in `context.view`."""
        initial_registers = []
        for register in self.variables:
            current = context.view.get(row[register].id)
            if current is None:
                return
            initial_registers.append((register, current))
        self._run(context, self._check, initial_registers, found)


def _types(element: ResolvedPart) -> tuple[str, ...]:
    match element:
        case ResolvedNode():
            return element.types
        case ResolvedEdge():
            return element.edge_types
        case ResolvedPath():
            return (element.edge,)


def _nested_patterns(expression: ResolvedExpression) -> Iterator[ResolvedPattern]:
    """Yield the patterns directly inside the expression, not the patterns inside their conditions."""
    if isinstance(expression, (resolved.ResolvedExists, resolved.ResolvedPatternAggregate)):
        yield expression.pattern
        return
    for part in child_expressions(expression):
        yield from _nested_patterns(part)


def _scanned_register(step: ScanNodes | ScanEdges) -> int:
    return step.node.register if isinstance(step, ScanNodes) else step.edge.register
