"""A shape: what all watches that differ only in constants have in common, compiled once and shared.

What mentions no constant is evaluated once per change for the whole shape. Conditions with constants are classified
into keys (equality), one range, and residual conditions, which are tested per watch that key and range select.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any

from vedette.element import Element
from vedette.language.compile.affected_matches import AffectedMatchFinder
from vedette.language.compile.execution_context import Row
from vedette.language.compile.patterns import PatternCompiler, symmetric_pairs
from vedette.language.compile.queries import BindingQuery, accumulator_factory, element_to_dict
from vedette.language.functions.comparison import distinct_key
from vedette.language.plan.steps import PlanContext
from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import can_raise, transform_expression, walk_expression
from vedette.language.resolve.queries import ResolvedQuery, ResolvedReturn
from vedette.language.resolve.tree import ResolvedEdge, ResolvedExpression, ResolvedNode, ResolvedPattern
from vedette.language.syntax.statements import Watch
from vedette.values import is_nan
from vedette.watch.aggregates import Contribution, are_incremental
from vedette.watch.delta import value_key, values_equal
from vedette.watch.shapes.conditions import (
    can_be_shared,
    classify_conditions,
    computed_expressions,
    depends_on_time,
    has_wildcard_end,
    mentions_constant,
    with_wildcard_targets,
)
from vedette.watch.shapes.key_index import KeyIndex
from vedette.watch.shapes.layer0 import counter_columns, is_incremental, reads_layer0, without_counters
from vedette.watch.shapes.relevant_attributes import relevant_attributes
from vedette.watch.shapes.resolver import SessionValue, restore_constant_targets

__all__ = ["ResolvedWatch", "WatchShape"]

_UNMATCHABLE_KEY = object()
"""The key of a watch that compares with NaN, which equals nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedWatch:
    """A WATCH after resolution: the input of `WatchShape`."""

    pattern: ResolvedPattern
    """All elements and all conditions, constants included."""
    returns: ResolvedReturn | None
    order: tuple[tuple[ResolvedExpression, bool], ...]
    captures: tuple[SessionValue, ...]
    register_count: int
    statement: Watch
    """The statement as first written, with the first watch's literals."""
    policy_conditions: tuple[ResolvedExpression, ...] = ()
    """Conditions of policies on the pattern's elements, for actors' watches: changes of what they read matter as
    well.
    """
    is_consume: bool = False
    """mode: consume. Matches are identified by all their elements, and a change of order counts as a change."""
    full_scan_types: frozenset[str] = frozenset()
    """Types whose changes may affect any match, because policies read them beyond what the pattern binds."""


class WatchShape:
    """The compiled parts of a shape and the index of its watches."""

    def __init__(
        self,
        watch: ResolvedWatch,
        context: PlanContext,
        *,
        guarded: bool = False,
        masked: frozenset[str] = frozenset(),
    ) -> None:
        """`guarded`: for actors under policies. `masked`: attributes that a policy may hide."""
        self.resolved = watch
        self.schema = context.schema
        self.register_count = watch.register_count
        shared_conditions = tuple(
            c for c in watch.pattern.where if not mentions_constant(c) and can_be_shared(c, guarded, masked)
        )
        watch_conditions = sorted(
            (c for c in watch.pattern.where if c not in shared_conditions), key=can_raise
        )
        indexable = [c for c in watch_conditions if can_be_shared(c, guarded, masked)]
        self.keys, self.range, self.residual = classify_conditions(watch_conditions, indexable)
        self._compared = [index for _, index in self.keys] + [r[2] for r in (self.range,) if r is not None]
        self._make_key_indexes(context)
        compiler = PatternCompiler(context)
        self.key_expressions = [compiler.compile_element_id(side) for side, _ in self.keys]
        self.range_expression = compiler.compile_expression(self.range[0]) if self.range is not None else None
        self.residual_tests = [compiler.compile_expression(c) for c in self.residual]
        self.shared_pattern = ResolvedPattern(watch.pattern.elements, shared_conditions)
        self.returns = watch.returns
        self.has_symmetric_choice = bool(watch_conditions or guarded) and bool(
            symmetric_pairs(watch.pattern, frozenset())
        )
        """True if a symmetric edge can match in either order: which one depends on each watch's conditions."""
        projections = watch.returns.projections if watch.returns is not None else ()
        per_watch_expressions = (
            *watch_conditions,
            *computed_expressions(watch.returns, watch.order),
            *watch.policy_conditions,
        )
        self._set_visibility(watch, projections, guarded)
        self.finder = AffectedMatchFinder(
            self.shared_pattern,
            [with_wildcard_targets(c) for c in per_watch_expressions],
            compiler,
            watch.register_count,
            identify_unnamed=self.identify_unnamed,
            canonical_orientation=not self.has_symmetric_choice,
            full_scan_types=watch.full_scan_types,
            relevant_attributes=None
            if guarded or watch.is_consume or self.reads_layer0
            else relevant_attributes(self.shared_pattern, self.computed(watch_conditions)),
        )
        self.columns = watch.returns.columns if watch.returns is not None else ()
        self.project = [compiler.compile_expression(p) for p in projections]
        self.order = [(compiler.compile_expression(c), descending) for c, descending in watch.order]
        self.descending = [descending for _, descending in watch.order]
        self.projects_constants = any(
            map(mentions_constant, computed_expressions(watch.returns, watch.order))
        )
        self.exporters = [_exporter(p, context) for p in projections]
        self.full_query = BindingQuery(
            ResolvedQuery(pattern=self.written_pattern), compiler, watch.register_count
        )
        """All matches for one watch's constants: for the initial snapshot and re-evaluation."""
        self.key_index: KeyIndex[Any] = KeyIndex(self.range[1] if self.range is not None else None)
        risky = any(map(can_raise, computed_expressions(watch.returns, watch.order)))
        self.needs_per_watch_check = (
            bool(self.residual)
            or self.projects_constants
            or self.depends_on_actor
            or self.has_symmetric_choice
            or risky
        )
        """True if each watch found by key must be checked individually."""
        self.actor_finder = (
            self._visible_match_finder(compiler)
            if self.depends_on_actor or self.has_symmetric_choice
            else self.finder
        )
        self._prepare_rows(self._single_element(per_watch_expressions, shared_conditions))
        self.shared_tests = [compiler.compile_expression(c) for c in shared_conditions]
        self._prepare_groups(watch.returns, compiler)
        self._classify(watch, projections)

    def _prepare_rows(self, single: ResolvedNode | None) -> None:
        self.find_watches = self.compile_watch_lookup()
        self.single_node = single
        self.single_register = single.register if single is not None else 0
        self.empty_row: Row = [None] * self.register_count
        """The row of a single-node pattern before its element is set."""

    def computed(self, watch_conditions: Sequence[ResolvedExpression]) -> tuple[ResolvedExpression, ...]:
        """Everything computed from a match, except for shared conditions."""
        keys = self.returns.group_keys if self.returns is not None else ()
        return (*watch_conditions, *computed_expressions(self.returns, self.resolved.order), *keys)

    def _set_visibility(
        self, watch: ResolvedWatch, projections: Sequence[ResolvedExpression], guarded: bool
    ) -> None:
        self.checks_policies = guarded
        """True for actors' watches under policies. Every match is then checked against the actor's view."""
        self.reads_layer0 = reads_layer0(
            watch.pattern, (*watch.pattern.where, *projections, *watch.policy_conditions)
        )
        """True if it reads Layer 0, which is not stored: watches, sessions, the ontology."""
        self.depends_on_actor = guarded or self.reads_layer0
        """True if policies or Layer 0 can hide matches from an actor.

        Every match is then checked against the actor's view.
        """

    def _classify(self, watch: ResolvedWatch, projections: Sequence[ResolvedExpression]) -> None:
        self.time_dependent = any(depends_on_time(c) for c in (*watch.pattern.where, *projections))
        self._exporting = any(export is not None for export in self.exporters)
        self._counters = counter_columns(self.columns, projections)
        self.strategy = self.choose_strategy()
        alone = self.single_node is not None and self.strategy == "rows"
        self.is_self_contained = alone and not (self.needs_per_watch_check or watch.is_consume)
        """True if the result depends on its element only: no other element, constant, time or actor."""

    def choose_strategy(self) -> str:
        """rows: each match is an event; groups, distinct: counts are maintained; reevaluated: computed again and
        compared.
        """
        maintainable = self.returns is None or are_incremental(self.returns.aggregates)
        if (self.aggregates or self.distinct) and any(map(has_wildcard_end, self.written_pattern.elements)):
            return "reevaluated"
        if self.time_dependent or not maintainable or (self.reads_layer0 and not self._can_be_followed()):
            return "reevaluated"
        if self.aggregates:
            return "groups"
        return "distinct" if self.distinct else "rows"

    def _can_be_followed(self) -> bool:
        watch = self.resolved
        tested = (
            *watch.pattern.where,
            *watch.policy_conditions,
            *(condition for condition, _ in watch.order),
        )
        counted = self._counted() if self.aggregates or self.distinct else ()
        return is_incremental(self.types, tested, counted)

    def _counted(self) -> tuple[ResolvedExpression, ...]:
        """What counted rows are stored by: their values, or their part in a group."""
        assert self.returns is not None
        if self.distinct and not self.aggregates:
            return self.returns.projections
        calls = [part for call in self.returns.aggregates for part in (call.operand, call.where)]
        wholes = (part for part in calls if part is not None and not isinstance(part, resolved.VariableRef))
        return (*self.returns.group_keys, *wholes)

    # --- properties -------------------------------------------------------------------------------------------

    @property
    def aggregates(self) -> bool:
        return self.returns is not None and bool(self.returns.aggregates)

    @property
    def identify_unnamed(self) -> bool:
        """True if matches are identified by all their elements, named or not."""
        return self.aggregates or self.distinct or self.resolved.is_consume

    @property
    def distinct(self) -> bool:
        return self.returns is not None and self.returns.distinct

    @property
    def group_keys(self) -> bool:
        """True if an aggregating shape has a group key. Without one there is always exactly one row."""
        return self.returns is not None and bool(self.returns.group_keys)

    @property
    def types(self) -> frozenset[str]:
        """Types whose changes affect this shape."""
        return frozenset(self.finder.anchors) | self.finder.full_scan_types

    def key_of_constants(self, constants: Sequence[Any]) -> Any:
        """The index key of a watch with these constants."""
        if any(is_nan(constants[index]) for index in self._compared):
            return _UNMATCHABLE_KEY
        if len(self.keys) == 1:
            return constants[self.keys[0][1]]
        return tuple([constants[index] for _, index in self.keys])

    def compile_watch_lookup(self) -> Callable[[Row], Collection[Any]]:
        """Return the function that finds the watches whose key and range select a row."""
        keys, ranged = self.key_expressions, self.range_expression
        if len(keys) != 1:
            return lambda row: self.key_index.find(
                tuple([key(row) for key in keys]) if keys else (), None if ranged is None else ranged(row)
            )
        key = keys[0]
        if ranged is None:
            return lambda row: self.key_index.find(key(row), None)
        return lambda row: self.key_index.find(key(row), ranged(row))

    @cached_property
    def written_pattern(self) -> ResolvedPattern:
        """The pattern with constants as edge targets, as MATCH evaluates it."""
        return restore_constant_targets(self.resolved.pattern)

    @cached_property
    def _identifying(self) -> tuple[int, ...]:
        bound = (e for e in self.written_pattern.elements if isinstance(e, (ResolvedNode, ResolvedEdge)))
        return tuple(e.register for e in bound if self.identify_unnamed or e.name is not None)

    @cached_property
    def claimed_element(self) -> ResolvedNode | ResolvedEdge | None:
        """The element that a consumer claims: the first of the pattern. None if the pattern begins with a path."""
        for element in self.written_pattern.elements:
            if isinstance(element, ResolvedNode) and element.implicit:
                continue
            return element if isinstance(element, (ResolvedNode, ResolvedEdge)) else None
        return None

    @property
    def has_claimed_element(self) -> bool:
        """True if identities contain the claimed element: a consume watch requires it."""
        element = self.claimed_element
        return element is not None and element.register in self._identifying

    @cached_property
    def claimed_position(self) -> int:
        """The position of the claimed element in an identity, for shapes that have one."""
        assert self.claimed_element is not None
        return self._identifying.index(self.claimed_element.register)

    def identity(self, row: list[Any]) -> tuple[str, ...]:
        """The identity of a match: the ids of its named elements, or of all elements if rows are counted."""
        return tuple([row[slot].id for slot in self._identifying])

    def range_of_constants(self, constants: Sequence[Any]) -> Any:
        return constants[self.range[2]] if self.range is not None else None

    def project_row(self, row: list[Any]) -> dict[str, Any]:
        """The row as delivered: a dict by column name, elements as images."""
        values = [closure(row) for closure in self.project]
        if self._exporting:
            values = [
                value if export is None else export(value)
                for value, export in zip(values, self.exporters, strict=True)
            ]
        return dict(zip(self.columns, values))  # noqa: B905 - equal lengths; this is on the path of every event

    def order_values(self, row: list[Any]) -> tuple[Any, ...]:
        return tuple([closure(row) for closure, _ in self.order]) if self.order else ()

    def changes_queue_order(self, before: list[Any], after: list[Any]) -> bool:
        """True if the match has the same row but another position in the queue."""
        return (
            self.resolved.is_consume
            and bool(self.order)
            and self.order_values(before) != self.order_values(after)
        )

    # --- groups -----------------------------------------------------------------------------------------------

    def contribution(self, row: list[Any]) -> Contribution:
        """A row's part in its group."""
        inputs = []
        for operand, where, keeps_null in self._aggregate_inputs:
            counts = where is None or bool(where(row))
            value = operand(row) if counts and operand is not None else True
            inputs.append((counts and (keeps_null or value is not None), value))
        return tuple([closure(row) for closure in self._keys]), inputs

    def aggregate_input_key(self, row: list[Any]) -> Any:
        """What groups and aggregates read of a match, in comparable form."""
        keys, inputs = self.contribution(row)
        return [_comparable(value) for value in keys], [
            (counts, _comparable(value)) for counts, value in inputs
        ]

    def group_row(self, context: Any, key_values: tuple[Any, ...], results: list[Any]) -> dict[str, Any]:
        """The row of a group: its key, its aggregates, and expressions over them."""
        row: list[Any] = [None] * (self.register_count + len(key_values))
        row[0] = context
        row[self.register_count :] = key_values
        for slot, result in zip(self._result_slots, results, strict=True):
            row[slot] = result
        values = [closure(row) for closure in self._group_project]
        return {
            name: value if export is None else export(value)
            for name, value, export in zip(self.columns, values, self.exporters, strict=True)
        }

    def evaluate_groups(self, rows: list[list[Any]], context: Any) -> dict[Any, dict[str, Any]]:
        """The rows of all groups, computed from all matches."""
        assert self.returns is not None
        groups: dict[Any, tuple[tuple[Any, ...], list[Any]]] = {}
        for row in sorted(rows, key=self._creation_order):  # the order in COLLECT must not depend on the plan
            key_values = tuple([closure(row) for closure in self._keys])
            identity = tuple([distinct_key(value) for value in key_values])
            if identity not in groups:
                groups[identity] = (key_values, [make() for make in self._aggregate_factories])
            for add, _ in groups[identity][1]:
                add(row)
        if not groups and not self._keys:
            groups[()] = ((), [make() for make in self._aggregate_factories])
        return {
            identity: self.group_row(context, key_values, [result() for _, result in states])
            for identity, (key_values, states) in groups.items()
        }

    def _creation_order(self, row: list[Any]) -> list[tuple[int, str]]:
        return [(len(id), id) for id in self.identity(row)]

    @cached_property
    def _collected(self) -> frozenset[str]:
        """Columns that contain COLLECT results."""
        projections = self.returns.projections if self.returns is not None else ()
        calls = [isinstance(p, resolved.AggregateCall) and p.name == "COLLECT" for p in projections]
        return frozenset(compress(self.columns, calls))

    def rows_differ(self, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """True if the rows differ for a reader. The order in COLLECT and counters of watches are ignored."""
        if self.reads_layer0:
            old, new = without_counters(old, self._counters), without_counters(new, self._counters)
        if not self._collected:
            return not values_equal(old, new)
        return any(
            not values_equal(old[name], value)
            if name not in self._collected
            else Counter(map(value_key, old[name])) != Counter(map(value_key, value))
            for name, value in new.items()
        )

    def _prepare_groups(self, returns: ResolvedReturn | None, compiler: PatternCompiler) -> None:
        if returns is None or not returns.aggregates:
            return
        keys = returns.group_keys
        self._keys = [compiler.compile_expression(key) for key in keys]
        self._aggregate_inputs = [
            (
                None if call.operand is None else compiler.compile_expression(call.operand),
                None if call.where is None else compiler.compile_expression(call.where),
                call.operand is None,
            )
            for call in returns.aggregates
        ]
        self._aggregate_factories = [
            accumulator_factory(call, operand, where)
            for call, (operand, where, _) in zip(returns.aggregates, self._aggregate_inputs, strict=True)
        ]
        self._result_slots = [call.register for call in returns.aggregates]
        held = {
            key: resolved.AggregateCall(
                "KEY", None, False, None, None, self.register_count + position, key.type
            )
            for position, key in enumerate(keys)
        }
        self._group_project = [
            compiler.compile_expression(
                transform_expression(p, lambda part: held.get(part) if part in keys else None)
            )
            for p in returns.projections
        ]

    # --- building ---------------------------------------------------------------------------------------------

    def _visible_match_finder(self, compiler: PatternCompiler) -> AffectedMatchFinder:
        """The finder that checks one match with one watch's constants and its actor's view."""
        return AffectedMatchFinder(
            self.written_pattern, (), compiler, self.register_count, identify_unnamed=self.identify_unnamed
        )

    def _single_element(
        self,
        per_watch_expressions: Sequence[ResolvedExpression],
        shared_conditions: Sequence[ResolvedExpression],
    ) -> ResolvedNode | None:
        """The node of a single-node pattern without nested patterns: the most common and fastest case."""
        elements = self.shared_pattern.elements
        nested = any(
            isinstance(part, (resolved.ResolvedExists, resolved.ResolvedPatternAggregate))
            for condition in (*per_watch_expressions, *shared_conditions)
            for part in walk_expression(condition)
        )
        if (
            len(elements) != 1
            or not isinstance(elements[0], ResolvedNode)
            or nested
            or self.finder.full_scan_types
        ):
            return None
        return elements[0]

    def _make_key_indexes(self, context: PlanContext) -> None:
        """Create the attribute indexes of key columns; otherwise each new watch would scan the graph for its
        snapshot.
        """
        for side, _ in self.keys:
            if isinstance(side, resolved.AttributeAccess) and isinstance(side.base, resolved.VariableRef):
                owners = {
                    holder.attributes[side.name].declared_in
                    for name in side.index_by_type
                    if (holder := context.schema.nodes.get(name) or context.schema.edges.get(name))
                    is not None
                    and not holder.is_layer0
                }
                if len(owners) == 1:
                    context.ensure_index(owners.pop(), side.name)


def _comparable(value: Any) -> Any:
    return (value.id, value_key(list(value.values))) if isinstance(value, Element) else value_key(value)


def _exporter(projection: ResolvedExpression, context: PlanContext) -> Callable[[Any], Any] | None:
    if projection.type.kind not in ("Node", "Edge", "List", "Any", "Union"):
        return None

    def export(value: Any) -> Any:
        if isinstance(value, list):
            return [export(item) for item in value]
        return (
            element_to_dict(value, context.schema)
            if hasattr(value, "values") and hasattr(value, "targets")
            else value
        )

    return export
