"""The closures of the plan steps: seek, scan, expand and filter.

Each function takes the parts of one step and returns its closure. A closure binds the registers of one row in place
for every candidate, so a consumer that keeps a row must copy it. Scans and expansions count the candidates that they
examine (`ExecutionContext.charge`), because the charge may release the engine lock or stop the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vedette.element import Element
from vedette.language.compile.execution_context import Row
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.resolve.tree import ResolvedEdge, ResolvedNode
from vedette.language.schema.model import Schema

__all__ = [
    "EdgeTargetMatcher",
    "RowConsumer",
    "bind_edge_targets",
    "check_type",
    "expand_edges",
    "expand_symmetric",
    "expand_to_one",
    "filter_rows",
    "register_id",
    "scan_edges",
    "scan_nodes",
    "scan_nulls",
    "seek_by_id",
    "seek_by_index",
]

RowConsumer = Callable[[Row], bool]
"""A step, or the consumer of the matches behind the last step.

It returns True to stop the search: a later step (EXISTS, LIMIT) needs no more rows. Every caller must then return True
at once. Consumers of a query write to `row[0].sink`.
"""

_CHARGE_EVERY_CANDIDATES = 4096
"""Scans charge in portions of this size; a call per candidate would be slower than the scan."""


class EdgeTargetMatcher:
    """Compares the targets of a candidate edge with known ids and binds the others to registers."""

    __slots__ = ("binds", "checks", "late_checks")

    def __init__(
        self,
        checks: tuple[tuple[int, CompiledExpression], ...],
        binds: tuple[tuple[int, int], ...],
        late_checks: tuple[tuple[int, CompiledExpression], ...],
    ) -> None:
        """Each check is a position and the expected id; each bind is a position and a register.

        `late_checks` compare with registers that `binds` set, so they run last.
        """
        self.checks = checks
        self.binds = binds
        self.late_checks = late_checks

    def match(self, row: Row, targets: tuple[str, ...]) -> bool:
        """True if the targets fit; then their registers are set. A target that the view hides does not fit."""
        for position, closure in self.checks:
            if targets[position] != closure(row):
                return False
        get = row[0].view.get
        for position, register in self.binds:
            element = get(targets[position])
            if element is None:
                return False
            row[register] = element
        return all(targets[position] == closure(row) for position, closure in self.late_checks)


def register_id(register: int) -> CompiledExpression:
    """Return a closure that reads the id of the element in a register."""
    return lambda row: None if (element := row[register]) is None else element.id


def filter_rows(condition: CompiledExpression, next_step: RowConsumer) -> RowConsumer:
    def step(row: Row) -> bool:
        return next_step(row) if condition(row) else False

    return step


def check_type(register: int, types: frozenset[str], next_step: RowConsumer) -> RowConsumer:
    def step(row: Row) -> bool:
        element = row[register]
        return next_step(row) if element is not None and element.type in types else False

    return step


def seek_by_id(
    register: int, types: frozenset[str], key: CompiledExpression, next_step: RowConsumer
) -> RowConsumer:
    def step(row: Row) -> bool:
        id = key(row)
        element = row[0].view.get(id) if type(id) is str else None
        if element is None or element.type not in types:
            return False
        row[register] = element
        return next_step(row)

    return step


def seek_by_index(
    register: int,
    owner: str,
    attribute: str,
    key: CompiledExpression,
    types: frozenset[str] | None,
    nulls: RowConsumer,
    next_step: RowConsumer,
) -> RowConsumer:
    def step(row: Row) -> bool:
        value = key(row)
        if value is None:
            return nulls(row)
        seen = 0
        for element in row[0].view.lookup(owner, attribute, value):
            seen += 1
            if types is None or element.type in types:
                row[register] = element
                if next_step(row):
                    row[0].charge(seen)
                    return True
        row[0].charge(seen)
        return False

    return step


def scan_nulls(node: ResolvedNode, attribute: str, schema: Schema, next_step: RowConsumer) -> RowConsumer:
    """Find the elements whose attribute is null by a scan.

    Null equals null (docs/reference/language/expressions.md#null), but an index contains no nulls.
    """
    index_by_type = {
        name: (schema.nodes.get(name) or schema.edges[name]).layout[attribute] for name in node.types
    }
    register = node.register

    def unset(row: Row) -> bool:
        element = row[register]
        return next_step(row) if element.values[index_by_type[element.type]] is None else False

    return scan_nodes(register, node.types, unset)


def scan_nodes(register: int, types: tuple[str, ...], next_step: RowConsumer) -> RowConsumer:
    def step(row: Row) -> bool:
        context = row[0]
        seen = 0
        for element in context.view.scan(types):
            seen += 1
            if seen == _CHARGE_EVERY_CANDIDATES:
                context.charge(seen)
                seen = 0
            row[register] = element
            if next_step(row):
                context.charge(seen)
                return True
        context.charge(seen)
        return False

    return step


def _orientations(edge: ResolvedEdge, candidate: Element) -> Iterable[tuple[str, ...]]:
    """Return the candidate's targets in each order to try: a symmetric edge matches in both."""
    targets = candidate.targets
    assert targets is not None
    if edge.symmetric and targets[0] != targets[1]:
        return targets, targets[::-1]
    return (targets,)


def scan_edges(edge: ResolvedEdge, targets: EdgeTargetMatcher, next_step: RowConsumer) -> RowConsumer:
    register = edge.register

    def step(row: Row) -> bool:
        context = row[0]
        seen = 0
        for candidate in context.view.scan(edge.edge_types):
            seen += 1
            if seen == _CHARGE_EVERY_CANDIDATES:
                context.charge(seen)
                seen = 0
            for ends in _orientations(edge, candidate):
                row[register] = candidate
                if targets.match(row, ends) and next_step(row):
                    context.charge(seen)
                    return True
        context.charge(seen)
        return False

    return step


def bind_edge_targets(edge: ResolvedEdge, targets: EdgeTargetMatcher, next_step: RowConsumer) -> RowConsumer:
    register, names = edge.register, frozenset(edge.edge_types)

    def step(row: Row) -> bool:
        candidate = row[register]
        if candidate is None or candidate.type not in names:
            return False
        return any(targets.match(row, ends) and next_step(row) for ends in _orientations(edge, candidate))

    return step


def expand_to_one(
    edge: ResolvedEdge,
    position: int,
    anchor: CompiledExpression,
    bind: tuple[int, int],
    next_step: RowConsumer,
) -> RowConsumer:
    """Expand from one bound end of an edge to its one free end, the most common step.

    Without EdgeTargetMatcher it takes 11.6 instead of 48.8 µs per 100 edges.
    """
    register, name = edge.register, edge.edge_types[0]
    other, target_register = bind

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
                row[register] = candidate
                row[target_register] = element
                if next_step(row):
                    row[0].charge(seen)
                    return True
        row[0].charge(seen)
        return False

    return step


def expand_edges(
    edge: ResolvedEdge,
    position: int,
    anchor: CompiledExpression,
    targets: EdgeTargetMatcher,
    next_step: RowConsumer,
) -> RowConsumer:
    register = edge.register

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
                    row[register] = candidate
                    if next_step(row):
                        row[0].charge(seen)
                        return True
        row[0].charge(seen)
        return False

    return step


def expand_symmetric(
    edge: ResolvedEdge,
    position: int,
    anchor: CompiledExpression,
    targets: EdgeTargetMatcher,
    next_step: RowConsumer,
) -> RowConsumer:
    register, name = edge.register, edge.edge_types[0]

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
                row[register] = candidate
                if next_step(row):
                    return True
        return False

    return step
