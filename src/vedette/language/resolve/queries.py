"""MATCH blocks and RETURN clauses ▸ resolved queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import child_expressions, registers_read, walk_expression
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import Scope
from vedette.language.resolve.tree import AggregateCall, ResolvedExpression, ResolvedPattern
from vedette.language.syntax import expressions as syntax
from vedette.language.syntax.statements import MatchBlock, Return

__all__ = [
    "ResolvedQuery",
    "ResolvedReturn",
    "bound_registers",
    "column_name",
    "outer_registers",
    "resolve_blocks",
    "resolve_return",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedReturn:
    columns: tuple[str, ...]
    projections: tuple[ResolvedExpression, ...]
    aggregates: tuple[AggregateCall, ...] = ()
    distinct: bool = False
    order: tuple[tuple[int | ResolvedExpression, bool], ...] = ()
    """A column's index or a condition of its own, and whether it descends."""
    limit: ResolvedExpression | None = None
    offset: ResolvedExpression | None = None

    @property
    def group_keys(self) -> tuple[ResolvedExpression, ...]:
        """The projections that make the group key: those without an aggregate."""
        return tuple(p for p in self.projections if not _has_aggregate(p))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedQuery:
    pattern: ResolvedPattern
    optional: tuple[ResolvedPattern, ...] = ()

    @property
    def registers(self) -> frozenset[int]:
        """Registers that the mandatory part binds."""
        return bound_registers(self.pattern)


def bound_registers(pattern: ResolvedPattern) -> frozenset[int]:
    return frozenset(
        element.register
        for element in pattern.elements
        if isinstance(element, (resolved.ResolvedNode, resolved.ResolvedEdge))
    )


def outer_registers(query: ResolvedQuery) -> frozenset[int]:
    """Registers that the query reads and somebody else binds."""
    used: set[int] = set()
    own: set[int] = set()
    for pattern in (query.pattern, *query.optional):
        nested = resolved.ResolvedExists(pattern)
        used |= registers_read(nested)
        own |= bound_registers(pattern)
    return frozenset(used - own)


def resolve_blocks(
    resolver: PatternResolver, blocks: Sequence[MatchBlock], optional: Sequence[MatchBlock], scope: Scope
) -> ResolvedQuery:
    """Repeated MATCH conjoins; each OPTIONAL MATCH stands for itself, its WHERE filters only its own part."""
    parts = [resolver.resolve_pattern(block.pattern, block.where, scope) for block in blocks]
    whole = ResolvedPattern(
        tuple(element for part in parts for element in part.elements),
        tuple(condition for part in parts for condition in part.where),
    )
    resolver.optional = True
    extra = tuple(resolver.resolve_pattern(block.pattern, block.where, scope) for block in optional)
    resolver.optional = False
    return ResolvedQuery(pattern=whole, optional=extra)


def resolve_return(resolver: PatternResolver, clause: Return, scope: Scope) -> ResolvedReturn:
    aggregates: list[AggregateCall] = []
    resolver.aggregates = aggregates
    columns: list[str] = []
    projections: list[ResolvedExpression] = []
    aliases: dict[str, int] = {}
    for projection in clause.projections:
        if projection.expression is None:
            for register in resolver.declared_variables(scope):
                columns.append(register.name)
                projections.append(register)
        else:
            if projection.alias is not None:
                aliases.setdefault(projection.alias, len(columns))
            columns.append(projection.alias or column_name(projection.expression))
            projections.append(resolver.resolve(projection.expression, scope))
    order = tuple(_order(resolver, term, aliases, projections, scope) for term in clause.order)
    resolver.aggregates = None
    if aggregates:
        _check_grouping(resolver, clause, projections, order)
    return ResolvedReturn(
        columns=tuple(columns),
        projections=tuple(projections),
        aggregates=tuple(aggregates),
        distinct=clause.distinct,
        order=order,
        limit=_amount(resolver, clause.limit, "LIMIT", scope),
        offset=_amount(resolver, clause.offset, "OFFSET", scope),
    )


def column_name(expression: syntax.Expression) -> str:
    """`v`, `v.attr`, the function's name as written, else `expr` (§2.6.1)."""
    match expression:
        case syntax.Variable(name=name):
            return name
        case syntax.Attribute(base=base, name=name):
            inner = column_name(base)
            return f"{inner}.{name}" if inner != "expr" else name
        case syntax.Call(name=name) | syntax.Aggregate(name=name) | syntax.PatternAggregate(name=name):
            return name
        case syntax.Parameter(name=name):
            return f"${name}"
    return "expr"


def _order(
    resolver: PatternResolver,
    term: syntax.OrderTerm,
    aliases: Mapping[str, int],
    projections: list[ResolvedExpression],
    scope: Scope,
) -> tuple[int | ResolvedExpression, bool]:
    """By alias, by an identical expression, or by one freshly computed."""
    expression = term.expression
    if isinstance(expression, syntax.Variable) and expression.name in aliases:
        return aliases[expression.name], term.descending
    found = resolver.resolve(expression, scope)
    if found in projections and not found.type.is_reference:
        return projections.index(found), term.descending
    if found.type.is_reference or found.type.kind == "List":
        resolver.analysis.report("E2003", f"Rows cannot be ordered by {found.type}", expression.span)
    return found, term.descending


def _check_grouping(
    resolver: PatternResolver,
    clause: Return,
    projections: list[ResolvedExpression],
    order: Sequence[tuple[int | ResolvedExpression, bool]],
) -> None:
    """Beside an aggregate, only what the group key fixes may be used."""
    keys = [p for p in projections if not _has_aggregate(p)]
    mixed = [(p, clause.span) for p in projections if _has_aggregate(p)]
    fresh = [(o, t.span) for (o, _), t in zip(order, clause.order, strict=True) if not isinstance(o, int)]
    for condition, span in [*mixed, *fresh]:
        if not _fixed_by(condition, keys):
            text = "Beside an aggregate only the other projections (the group key) may be used: return it as well"
            resolver.analysis.report("E2009", text, span)


def _fixed_by(condition: ResolvedExpression, keys: list[ResolvedExpression]) -> bool:
    if isinstance(condition, AggregateCall) or condition in keys:
        return True
    if isinstance(condition, resolved.VariableRef):
        return False
    return all(_fixed_by(part, keys) for part in child_expressions(condition))


def _has_aggregate(condition: ResolvedExpression) -> bool:
    return any(isinstance(part, AggregateCall) for part in walk_expression(condition))


def _amount(
    resolver: PatternResolver, expression: syntax.Expression | None, clause: str, scope: Scope
) -> ResolvedExpression | None:
    if expression is None:
        return None
    found = resolver.resolve(expression, scope)
    if found.type.kind not in ("Int", "Any"):
        resolver.analysis.report("E2003", f"{clause} needs an Int, this is {found.type}", expression.span)
    return found
