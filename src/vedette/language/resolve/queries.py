"""Resolve MATCH blocks and RETURN clauses."""

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
    """Sort keys: the index of a column or an expression, and True for descending order."""
    limit: ResolvedExpression | None = None
    offset: ResolvedExpression | None = None

    @property
    def group_keys(self) -> tuple[ResolvedExpression, ...]:
        """The projections without an aggregate. Their values identify a group."""
        return tuple(p for p in self.projections if not _has_aggregate(p))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedQuery:
    pattern: ResolvedPattern
    optional: tuple[ResolvedPattern, ...] = ()

    @property
    def registers(self) -> frozenset[int]:
        """The registers that the MATCH part binds, without OPTIONAL MATCH."""
        return bound_registers(self.pattern)


def bound_registers(pattern: ResolvedPattern) -> frozenset[int]:
    """Return the registers of the pattern's nodes and edges."""
    return frozenset(
        element.register
        for element in pattern.elements
        if isinstance(element, (resolved.ResolvedNode, resolved.ResolvedEdge))
    )


def outer_registers(query: ResolvedQuery) -> frozenset[int]:
    """Return the registers that the query reads but does not bind."""
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
    """Resolve the blocks of one statement into `scope`.

    Several MATCH blocks are one pattern. Each OPTIONAL MATCH is a pattern of its own: its WHERE filters only the
    matches of that pattern.
    """
    parts = [resolver.resolve_pattern(block.pattern, block.where, scope) for block in blocks]
    whole = ResolvedPattern(
        tuple(element for part in parts for element in part.elements),
        tuple(condition for part in parts for condition in part.where),
    )
    inner = scope.as_optional()
    extra = tuple(resolver.resolve_pattern(block.pattern, block.where, inner) for block in optional)
    return ResolvedQuery(pattern=whole, optional=extra)


def resolve_return(resolver: PatternResolver, clause: Return, scope: Scope) -> ResolvedReturn:
    columns: list[str] = []
    projections: list[ResolvedExpression] = []
    aliases: dict[str, int] = {}
    with resolver.collecting_aggregates() as aggregates:
        for projection in clause.projections:
            if projection.expression is None:
                for variable in resolver.declared_variables(scope):
                    columns.append(variable.name)
                    projections.append(variable)
            else:
                if projection.alias is not None:
                    aliases.setdefault(projection.alias, len(columns))
                columns.append(projection.alias or column_name(projection.expression))
                projections.append(resolver.resolve(projection.expression, scope))
        order = tuple(_sort_key(resolver, term, aliases, projections, scope) for term in clause.order)
    if aggregates:
        _check_grouping(resolver, clause, projections, order)
    return ResolvedReturn(
        columns=tuple(columns),
        projections=tuple(projections),
        aggregates=tuple(aggregates),
        distinct=clause.distinct,
        order=order,
        limit=_row_count(resolver, clause.limit, "LIMIT", scope),
        offset=_row_count(resolver, clause.offset, "OFFSET", scope),
    )


def column_name(expression: syntax.Expression) -> str:
    """Return the name of a column without AS: `v`, `v.attr`, a function's name as written, `$name`, else `expr`.

    docs/reference/language/patterns.md#return describes the names.
    """
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


def _sort_key(
    resolver: PatternResolver,
    term: syntax.OrderTerm,
    aliases: Mapping[str, int],
    projections: list[ResolvedExpression],
    scope: Scope,
) -> tuple[int | ResolvedExpression, bool]:
    """Resolve a term of ORDER BY: an alias, an expression that is also a column, or an expression of its own."""
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
    """Report expressions beside an aggregate that are not determined by the group key (E2009)."""
    keys = [p for p in projections if not _has_aggregate(p)]
    mixed = [(p, clause.span) for p in projections if _has_aggregate(p)]
    ordered = [(o, t.span) for (o, _), t in zip(order, clause.order, strict=True) if not isinstance(o, int)]
    for expression, span in [*mixed, *ordered]:
        if not _is_determined_by(expression, keys):
            text = "Beside an aggregate only other columns (the group key) are allowed: return this value too"
            resolver.analysis.report("E2009", text, span)


def _is_determined_by(expression: ResolvedExpression, keys: list[ResolvedExpression]) -> bool:
    if isinstance(expression, AggregateCall) or expression in keys:
        return True
    if isinstance(expression, resolved.VariableRef):
        return False
    return all(_is_determined_by(part, keys) for part in child_expressions(expression))


def _has_aggregate(expression: ResolvedExpression) -> bool:
    return any(isinstance(part, AggregateCall) for part in walk_expression(expression))


def _row_count(
    resolver: PatternResolver, expression: syntax.Expression | None, clause: str, scope: Scope
) -> ResolvedExpression | None:
    if expression is None:
        return None
    found = resolver.resolve(expression, scope)
    if found.type.kind not in ("Int", "Any"):
        resolver.analysis.report("E2003", f"{clause} needs an Int, this is {found.type}", expression.span)
    return found
