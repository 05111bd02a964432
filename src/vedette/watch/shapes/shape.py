"""A shape: what all watches that differ only in constants have in common, compiled once and shared.

The pattern is split in two. What mentions no constant is evaluated once per change for the whole shape. What does is
sorted into keys (equality), one range, and a residual that is tested per watch that key and range let through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any

from vedette.element import Element
from vedette.language.compile.affected_matches import AffectedMatches
from vedette.language.compile.execution_context import Row
from vedette.language.compile.patterns import PatternChains, turnable_pairs
from vedette.language.compile.queries import BindingQuery, image_of
from vedette.language.functions.aggregates import make_aggregate
from vedette.language.functions.comparison import distinct_key
from vedette.language.plan.planner import PlanContext
from vedette.language.resolve import tree as resolved
from vedette.language.resolve.queries import ResolvedQuery, ResolvedReturn
from vedette.language.resolve.tree import (
    Condition,
    EdgeElement,
    NodeElement,
    ResolvedPattern,
    can_fail,
)
from vedette.language.syntax.statements import Watch
from vedette.values import is_nan
from vedette.watch.aggregates import Contribution, maintained
from vedette.watch.delta import frozen, same
from vedette.watch.shapes.conditions import (
    ends_anywhere,
    evaluated,
    is_open,
    prunes,
    split,
    tells_time,
    without_constants,
)
from vedette.watch.shapes.key_index import KeyIndex
from vedette.watch.shapes.layer0 import can_be_followed, counter_columns, looks_at_layer0, without_counters
from vedette.watch.shapes.relevant_attributes import attention
from vedette.watch.shapes.resolver import Capture, without_hidden

__all__ = ["ResolvedWatch", "WatchShape"]

_NEVER = object()
"""The key of a watch that compares with NaN: nothing is equal to it, above or below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedWatch:
    """A WATCH after resolution: everything that its shape is made from."""

    pattern: ResolvedPattern
    """All elements and all conditions, constants included."""
    returns: ResolvedReturn | None
    order: tuple[tuple[Condition, bool], ...]
    captures: tuple[Capture, ...]
    size: int
    statement: Watch
    """As it was first written; its literals are the first watch's."""
    sight: tuple[Condition, ...] = ()
    """Conditions of policies about the pattern's elements, for watches of actors: what they look at matters too."""
    consumes: bool = False
    """mode: consume: matches are known by all their elements, and their order matters as much as their looks."""
    wide: frozenset[str] = frozenset()
    """Types whose changes may concern any match: policies look at them for what the pattern does not bind."""


class WatchShape:
    """Compiled parts of a shape and the index of its watches."""

    def __init__(
        self,
        watch: ResolvedWatch,
        context: PlanContext,
        *,
        guarded: bool = False,
        masked: frozenset[str] = frozenset(),
    ) -> None:
        """`guarded` shapes are of actors under policies; `masked` are attributes that a policy may hide from them."""
        self.resolved = watch
        self.schema = context.schema
        self.size = watch.size
        closed = tuple(c for c in watch.pattern.where if not is_open(c) and prunes(c, guarded, masked))
        opened = sorted((c for c in watch.pattern.where if c not in closed), key=can_fail)
        shared = [c for c in opened if prunes(c, guarded, masked)]
        self.keys, self.range, self.residual = split(opened, shared)
        self._compared = [index for _, index in self.keys] + [r[2] for r in (self.range,) if r is not None]
        self._make_key_indexes(context)
        chains = PatternChains(context)
        self.key_closures = [chains.id(side) for side, _ in self.keys]
        self.range_closure = chains.condition(self.range[0]) if self.range is not None else None
        self.residual_closures = [chains.condition(c) for c in self.residual]
        self.open_pattern = ResolvedPattern(watch.pattern.elements, closed)
        self.returns = watch.returns
        self.turnable = bool(opened or guarded) and bool(turnable_pairs(watch.pattern, frozenset()))
        """In which order a symmetric edge counts is for each watch to say: it depends on what it lets through."""
        projections = watch.returns.projections if watch.returns is not None else ()
        looked_at = (*opened, *evaluated(watch.returns, watch.order), *watch.sight)
        self._set_sight(watch, projections, guarded)
        self.matches = AffectedMatches(
            self.open_pattern,
            [without_constants(c) for c in looked_at],
            chains,
            watch.size,
            every_row=self.every_row,
            canonical=not self.turnable,
            wide=watch.wide,
            attention=None
            if guarded or watch.consumes or self.layered
            else attention(self.open_pattern, self.computed(opened)),
        )
        self.columns = watch.returns.columns if watch.returns is not None else ()
        self.project = [chains.condition(p) for p in projections]
        self.order = [(chains.condition(c), descending) for c, descending in watch.order]
        self.directions = [descending for _, descending in watch.order]
        self.open_projection = any(map(is_open, evaluated(watch.returns, watch.order)))
        self.exports = [_exporter(p, context) for p in projections]
        self.query = BindingQuery(ResolvedQuery(pattern=self.plain), chains, watch.size)
        """All matches for one watch's constants: the initial snapshot, and the oracle."""
        self.index: KeyIndex[Any] = KeyIndex(self.range[1] if self.range is not None else None)
        risky = any(map(can_fail, evaluated(watch.returns, watch.order)))
        self.private = bool(self.residual) or self.open_projection or self.judged or self.turnable or risky
        """Whether watches found by key must each be asked."""
        self.verify = self._verifier(chains) if self.judged or self.turnable else self.matches
        self._prepare_rows(self._single_element(looked_at, closed))
        self.closed_closures = [chains.condition(c) for c in closed]
        self._prepare_groups(watch.returns, chains)
        self._classify(watch, projections)

    def _prepare_rows(self, single: NodeElement | None) -> None:
        self.candidates = self._finder()
        self.single = single
        self.slot = single.slot if single is not None else 0
        self.blank: Row = [None] * self.size
        """The row of a single element before that stands in its slot."""

    def computed(self, opened: Sequence[Condition]) -> tuple[Condition, ...]:
        """Everything that is computed from a match, but for the conditions that all its watches share."""
        keys = self.returns.keys if self.returns is not None else ()
        return (*opened, *evaluated(self.returns, self.resolved.order), *keys)

    def _set_sight(self, watch: ResolvedWatch, projections: Sequence[Condition], guarded: bool) -> None:
        self.guarded = guarded
        """Watches of actors while policies exist: each match is judged with the actor's eyes."""
        self.layered = looks_at_layer0(watch.pattern, (*watch.pattern.where, *projections, *watch.sight))
        """Whether it looks at Layer 0, which is stored nowhere: watches, sessions, the ontology."""
        self.judged = guarded or self.layered
        """Whether actors may see less of it than the system context: each match is judged with their eyes."""

    def _classify(self, watch: ResolvedWatch, projections: Sequence[Condition]) -> None:
        self.time_dependent = any(tells_time(c) for c in (*watch.pattern.where, *projections))
        self._exporting = any(export is not None for export in self.exports)
        self._counters = counter_columns(self.columns, projections)
        self.strategy = self._choose_strategy()
        alone = self.single is not None and self.strategy == "rows"
        self.blind = alone and not (self.private or watch.consumes)
        """Whether its element says all: no other element, no constant, no time and no actor is looked at."""

    def _choose_strategy(self) -> str:
        """rows: each match is an event; groups, distinct: counts are kept; reevaluated: computed anew and compared."""
        maintainable = self.returns is None or maintained(self.returns.aggregates)
        if (self.aggregates or self.distinct) and any(map(ends_anywhere, self.plain.elements)):
            return "reevaluated"
        if self.time_dependent or not maintainable or (self.layered and not self._can_be_followed()):
            return "reevaluated"
        if self.aggregates:
            return "groups"
        return "distinct" if self.distinct else "rows"

    def _can_be_followed(self) -> bool:
        watch = self.resolved
        tested = (*watch.pattern.where, *watch.sight, *(condition for condition, _ in watch.order))
        counted = self._counted() if self.aggregates or self.distinct else ()
        return can_be_followed(self.types, tested, counted)

    def _counted(self) -> tuple[Condition, ...]:
        """What rows are kept by when they are counted: their own values, or their part in a group."""
        assert self.returns is not None
        if self.distinct and not self.aggregates:
            return self.returns.projections
        calls = [part for call in self.returns.aggregates for part in (call.operand, call.where)]
        wholes = (part for part in calls if part is not None and not isinstance(part, resolved.Slot))
        return (*self.returns.keys, *wholes)

    # --- facts ------------------------------------------------------------------------------------------------

    @property
    def aggregates(self) -> bool:
        return self.returns is not None and bool(self.returns.aggregates)

    @property
    def every_row(self) -> bool:
        """Whether matches are told apart by all their elements, named or not."""
        return self.aggregates or self.distinct or self.resolved.consumes

    @property
    def distinct(self) -> bool:
        return self.returns is not None and self.returns.distinct

    @property
    def group_keys(self) -> bool:
        """Whether an aggregating shape has a group key; without one there is always exactly one row."""
        return self.returns is not None and bool(self.returns.keys)

    def touches(self, type_name: str) -> bool:
        return type_name in self.matches.anchors or type_name in self.matches.wide

    @property
    def types(self) -> frozenset[str]:
        """Types whose changes concern this shape."""
        return frozenset(self.matches.anchors) | self.matches.wide

    def key_of(self, constants: Sequence[Any]) -> Any:
        """The key under which a watch with these constants stands."""
        if any(is_nan(constants[index]) for index in self._compared):
            return _NEVER
        if len(self.keys) == 1:
            return constants[self.keys[0][1]]
        return tuple([constants[index] for _, index in self.keys])

    def _finder(self) -> Callable[[Row], Collection[Any]]:
        """What finds the watches whose key and range let a row through."""
        keys, ranged = self.key_closures, self.range_closure
        if len(keys) != 1:
            return lambda row: self.index.find(
                tuple([key(row) for key in keys]) if keys else (), None if ranged is None else ranged(row)
            )
        key = keys[0]
        if ranged is None:
            return lambda row: self.index.find(key(row), None)
        return lambda row: self.index.find(key(row), ranged(row))

    @cached_property
    def plain(self) -> ResolvedPattern:
        """The pattern with constants as targets, as MATCH would have it."""
        return without_hidden(self.resolved.pattern)

    @cached_property
    def _identifying(self) -> tuple[int, ...]:
        bound = (e for e in self.plain.elements if isinstance(e, (NodeElement, EdgeElement)))
        return tuple(e.slot for e in bound if self.every_row or e.name is not None)

    @property
    def leading(self) -> int:
        """The same, where it was checked that there is one."""
        assert self.first is not None
        return self.first

    @cached_property
    def first(self) -> int | None:
        """Where the first element of the pattern stands in an identity; None when that is a path."""
        element = self.first_element
        known = element is not None and element.slot in self._identifying
        return self._identifying.index(element.slot) if known and element is not None else None

    @cached_property
    def first_element(self) -> NodeElement | EdgeElement | None:
        """The element that a consumer claims; None when the pattern begins with a path."""
        for element in self.plain.elements:
            if isinstance(element, NodeElement) and element.implicit:
                continue
            return element if isinstance(element, (NodeElement, EdgeElement)) else None
        return None

    def identity(self, row: list[Any]) -> tuple[str, ...]:
        """What a match is known by: the ids of its named elements (B1); of all, where rows are counted."""
        return tuple([row[slot].id for slot in self._identifying])

    def range_constant(self, constants: Sequence[Any]) -> Any:
        return constants[self.range[2]] if self.range is not None else None

    def projected(self, row: list[Any]) -> dict[str, Any]:
        """The row as a watcher sees it: a dict by column name, elements as images."""
        values = [closure(row) for closure in self.project]
        if self._exporting:
            values = [
                value if export is None else export(value)
                for value, export in zip(values, self.exports, strict=True)
            ]
        return dict(zip(self.columns, values))  # noqa: B905 - one for each: this is every event's way

    def order_of(self, row: list[Any]) -> tuple[Any, ...]:
        return tuple([closure(row) for closure, _ in self.order]) if self.order else ()

    def moves(self, before: list[Any], after: list[Any]) -> bool:
        """Whether a match that looks the same has another place in the order of a queue."""
        return self.resolved.consumes and bool(self.order) and self.order_of(before) != self.order_of(after)

    # --- groups -----------------------------------------------------------------------------------------------

    def contribution(self, row: list[Any]) -> Contribution:
        """A row's part in its group."""
        inputs = []
        for operand, where, keeps_null in self._inputs:
            counts = where is None or bool(where(row))
            value = operand(row) if counts and operand is not None else True
            inputs.append((counts and (keeps_null or value is not None), value))
        return tuple([closure(row) for closure in self._keys]), inputs

    def taken(self, row: list[Any]) -> Any:
        """What groups and aggregates take from a match, to be compared: a match that looks the same has not changed."""
        keys, inputs = self.contribution(row)
        return [_comparable(value) for value in keys], [
            (counts, _comparable(value)) for counts, value in inputs
        ]

    def group_row(self, context: Any, key_values: tuple[Any, ...], results: list[Any]) -> dict[str, Any]:
        """The row of a group: its key, its aggregates, and what is computed from them."""
        row: list[Any] = [None] * (self.size + len(key_values))
        row[0] = context
        row[self.size :] = key_values
        for slot, result in zip(self._result_slots, results, strict=True):
            row[slot] = result
        values = [closure(row) for closure in self._group_project]
        return {
            name: value if export is None else export(value)
            for name, value, export in zip(self.columns, values, self.exports, strict=True)
        }

    def grouped(self, rows: list[list[Any]], context: Any) -> dict[Any, dict[str, Any]]:
        """Rows of all groups, computed from all matches: what a fresh evaluation says."""
        assert self.returns is not None
        groups: dict[Any, tuple[tuple[Any, ...], list[Any]]] = {}
        for row in sorted(rows, key=self._age):  # what COLLECT yields must not depend on the way it was found
            key_values = tuple([closure(row) for closure in self._keys])
            identity = tuple([distinct_key(value) for value in key_values])
            if identity not in groups:
                groups[identity] = (key_values, [make() for make in self._makers])
            for add, _ in groups[identity][1]:
                add(row)
        if not groups and not self._keys:
            groups[()] = ((), [make() for make in self._makers])
        return {
            identity: self.group_row(context, key_values, [result() for _, result in states])
            for identity, (key_values, states) in groups.items()
        }

    def _age(self, row: list[Any]) -> list[tuple[int, str]]:
        return [(len(id), id) for id in self.identity(row)]

    @cached_property
    def _collected(self) -> frozenset[str]:
        """Columns that hold what COLLECT found."""
        projections = self.returns.projections if self.returns is not None else ()
        calls = [isinstance(p, resolved.AggregateCall) and p.name == "COLLECT" for p in projections]
        return frozenset(compress(self.columns, calls))

    def differs(self, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """Whether a reader would call two rows different; COLLECT promises no order, watches' counters are no news."""
        if self.layered:
            old, new = without_counters(old, self._counters), without_counters(new, self._counters)
        if not self._collected:
            return not same(old, new)
        return any(
            not same(old[name], value)
            if name not in self._collected
            else Counter(map(frozen, old[name])) != Counter(map(frozen, value))
            for name, value in new.items()
        )

    def _prepare_groups(self, returns: ResolvedReturn | None, chains: PatternChains) -> None:
        if returns is None or not returns.aggregates:
            return
        keys = returns.keys
        self._keys = [chains.condition(key) for key in keys]
        self._inputs = [
            (
                None if call.operand is None else chains.condition(call.operand),
                None if call.where is None else chains.condition(call.where),
                call.operand is None,
            )
            for call in returns.aggregates
        ]
        self._makers = [
            make_aggregate(call, operand, where)
            for call, (operand, where, _) in zip(returns.aggregates, self._inputs, strict=True)
        ]
        self._result_slots = [call.slot for call in returns.aggregates]
        held = {
            key: resolved.AggregateCall("KEY", None, False, None, None, self.size + place, key.type)
            for place, key in enumerate(keys)
        }
        self._group_project = [
            chains.condition(resolved.rebuild(p, lambda part: held.get(part) if part in keys else None))
            for p in returns.projections
        ]

    # --- building ---------------------------------------------------------------------------------------------

    def _verifier(self, chains: PatternChains) -> AffectedMatches:
        """Judges one match with one watch's constants and its actor's eyes."""
        return AffectedMatches(self.plain, (), chains, self.size, every_row=self.every_row)

    def _single_element(
        self, looked_at: Sequence[Condition], closed: Sequence[Condition]
    ) -> NodeElement | None:
        """The one node of a pattern that has nothing else to look at: the commonest watch, and the quickest."""
        elements = self.open_pattern.elements
        nested = any(
            isinstance(part, (resolved.ExistsIn, resolved.PatternFold))
            for condition in (*looked_at, *closed)
            for part in resolved.subexpressions(condition)
        )
        if len(elements) != 1 or not isinstance(elements[0], NodeElement) or nested or self.matches.wide:
            return None
        return elements[0]

    def _make_key_indexes(self, context: PlanContext) -> None:
        """Key columns create the index they need, or each new watch would scan the graph for its snapshot."""
        for side, _ in self.keys:
            if isinstance(side, resolved.AttributeOf) and isinstance(side.base, resolved.Slot):
                owners = {
                    holder.attributes[side.name].owner
                    for name in side.places
                    if (holder := context.schema.nodes.get(name) or context.schema.edges.get(name))
                    is not None
                    and not holder.protected
                }
                if len(owners) == 1:
                    context.ensure_index(owners.pop(), side.name)


def _comparable(value: Any) -> Any:
    return (value.id, frozen(list(value.values))) if isinstance(value, Element) else frozen(value)


def _exporter(projection: Condition, context: PlanContext) -> Callable[[Any], Any] | None:
    if projection.type.kind not in ("Node", "Edge", "List", "Any", "Union"):
        return None

    def export(value: Any) -> Any:
        if isinstance(value, list):
            return [export(item) for item in value]
        return (
            image_of(value, context.schema)
            if hasattr(value, "values") and hasattr(value, "targets")
            else value
        )

    return export
