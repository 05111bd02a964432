"""Run queries: matches as rows of registers, and RETURN with groups, DISTINCT, ORDER BY, LIMIT and OFFSET.

The search writes to `context.sink`: a list of rows, or a dictionary of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vedette.element import Element
from vedette.errors import QueryError
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.compile.steps import RowConsumer
from vedette.language.functions.aggregates import accumulator_for
from vedette.language.functions.comparison import distinct_key
from vedette.language.resolve.queries import ResolvedQuery, ResolvedReturn, bound_registers
from vedette.language.resolve.tree import AggregateCall, ResolvedExpression, ResolvedPattern
from vedette.language.schema.model import Schema

__all__ = ["BindingQuery", "RowQuery", "accumulator_factory", "element_to_dict"]

_NO_LIMIT = 1 << 62


def element_to_dict(element: Element, schema: Schema) -> dict[str, Any]:
    """Return an element as users see it: `id`, `_type`, then its attributes. An attribute named id replaces the id."""
    holder = schema.edges[element.type] if element.targets is not None else schema.nodes[element.type]
    values: dict[str, Any] = {"id": element.id, "_type": element.type}
    values.update(zip(holder.layout, element.values, strict=False))
    return values


class BindingQuery:
    """A query whose matches are rows of registers. MATCH … SET and rules run their actions on them."""

    def __init__(
        self, query: ResolvedQuery, compiler: PatternCompiler, size: int, outer: frozenset[int] = frozenset()
    ) -> None:
        self._size = size
        self._search = _compile_query(query, compiler, _append_row, outer)

    def run(self, context: ExecutionContext, initial_registers: Sequence[tuple[int, Any]] = ()) -> list[Row]:
        context.sink = []
        row: Row = [None] * self._size
        row[0] = context
        for register, value in initial_registers:
            row[register] = value
        try:
            self._search(row)
            found: list[Row] = context.sink
            return found
        finally:
            context.sink = None  # rows refer to the context; this avoids a reference cycle


class RowQuery:
    """A query with RETURN: rows of values after grouping, DISTINCT, ORDER BY, LIMIT and OFFSET."""

    def __init__(
        self,
        query: ResolvedQuery,
        returns: ResolvedReturn,
        compiler: PatternCompiler,
        size: int,
        schema: Schema,
        outer: frozenset[int] = frozenset(),
    ) -> None:
        self.columns = returns.columns
        self._size = size
        self._width = len(returns.columns)
        self._distinct = returns.distinct
        self._limit = _closure(compiler, returns.limit)
        self._offset = _closure(compiler, returns.offset)
        extra = [condition for condition, _ in returns.order if not isinstance(condition, int)]
        self._project = [
            compiler.compile_expression(condition) for condition in (*returns.projections, *extra)
        ]
        self._order = _order_columns(returns, self._width)
        self._export = _exporters(returns.projections, schema)
        self._grouping = _Grouping(returns, compiler, self._project) if returns.aggregates else None
        self._stops_early = not (returns.distinct or returns.order or returns.aggregates)
        sink = self._grouping.add if self._grouping is not None else _row_sink(self._project)
        self._search = _compile_query(query, compiler, sink, outer)

    def run(self, context: ExecutionContext) -> list[tuple[Any, ...]]:
        """Return the rows with elements as dictionaries."""
        return self._exported(self.rows(context))

    def rows(
        self, context: ExecutionContext, initial_registers: Sequence[tuple[int, Any]] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows with `Element` objects. Sort keys that are not columns follow the columns."""
        row: Row = [None] * self._size
        row[0] = context
        for register, value in initial_registers:
            row[register] = value
        offset = _amount(self._offset, row, "OFFSET", 0)
        limit = _amount(self._limit, row, "LIMIT", _NO_LIMIT)
        context.max_rows = offset + limit if self._stops_early else _NO_LIMIT
        context.sink = [] if self._grouping is None else {}
        try:
            if context.max_rows > 0:
                self._search(row)
            rows = context.sink if self._grouping is None else self._grouping.rows(context.sink, row)
        finally:
            context.sink = None  # groups refer to rows and rows to the context; this avoids a reference cycle
        if self._distinct:
            rows = _distinct(rows, self._width)
        for column, descending in reversed(self._order):
            _sort(rows, column, descending)
        if offset or limit < len(rows):
            rows = rows[offset : offset + limit]
        return rows

    def _exported(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        width, export = self._width, self._export
        if export is None:
            return rows if len(self._project) == width else [row[:width] for row in rows]
        return [
            tuple([value if f is None else f(value) for f, value in zip(export, row, strict=False)])
            for row in rows
        ]


# --- search -----------------------------------------------------------------------------------------------------


def _compile_query(
    query: ResolvedQuery, compiler: PatternCompiler, sink: RowConsumer, outer: frozenset[int]
) -> RowConsumer:
    """Compile a search over the MATCH pattern, then each OPTIONAL MATCH, then the consumer."""
    bound = query.registers | outer
    before: list[frozenset[int]] = []
    for part in query.optional:
        before.append(bound)
        bound |= bound_registers(part)
    next_step = sink
    for part, known in zip(reversed(query.optional), reversed(before), strict=True):
        next_step = _optional(part, known, compiler, next_step)
    return compiler.compile_pattern(query.pattern, next_step, outer=outer).run


def _optional(
    part: ResolvedPattern, known: frozenset[int], compiler: PatternCompiler, next_step: RowConsumer
) -> RowConsumer:
    fresh = tuple(bound_registers(part) - known)
    flag = object()

    def matched(row: Row) -> bool:
        row[0].matched_optionals.add(flag)
        return next_step(row)

    search = compiler.compile_pattern(part, matched, outer=known).run

    def step(row: Row) -> bool:
        seen = row[0].matched_optionals
        seen.discard(flag)
        if search(row):
            return True
        if flag in seen:
            return False
        for register in fresh:
            row[register] = None
        return next_step(row)

    return step


def _append_row(row: Row) -> bool:
    row[0].sink.append(row.copy())
    return False


def _row_sink(project: Sequence[CompiledExpression]) -> RowConsumer:
    if len(project) == 1:  # 154 instead of 329 ns a row
        only = project[0]

        def keep_one(row: Row) -> bool:
            context = row[0]
            context.sink.append((only(row),))
            return bool(len(context.sink) >= context.max_rows)

        return keep_one

    def keep(row: Row) -> bool:
        context = row[0]
        context.sink.append(tuple([part(row) for part in project]))
        return bool(len(context.sink) >= context.max_rows)

    return keep


class _Grouping:
    """Groups rows by the columns without an aggregate. Without such columns there is exactly one group."""

    def __init__(
        self, returns: ResolvedReturn, compiler: PatternCompiler, project: Sequence[CompiledExpression]
    ) -> None:
        self._keys = [compiler.compile_expression(key) for key in returns.group_keys]
        self._registers = [call.register for call in returns.aggregates]
        self._project = project
        self._makers = [
            accumulator_factory(call, _closure(compiler, call.operand), _closure(compiler, call.where))
            for call in returns.aggregates
        ]

    def add(self, row: Row) -> bool:
        groups = row[0].sink
        key = tuple([distinct_key(part(row)) for part in self._keys])
        group = groups.get(key)
        if group is None:
            group = groups[key] = (row.copy(), [make() for make in self._makers])
        for add, _ in group[1]:
            add(row)
        return False

    def rows(self, groups: dict[Any, Any], empty: Row) -> list[tuple[Any, ...]]:
        if not groups and not self._keys:
            groups[()] = (empty, [make() for make in self._makers])
        return [self._finish(first, states) for first, states in groups.values()]

    def _finish(self, row: Row, states: list[tuple[Any, Callable[[], Any]]]) -> tuple[Any, ...]:
        for register, (_, result) in zip(self._registers, states, strict=True):
            row[register] = result()
        return tuple([part(row) for part in self._project])


def accumulator_factory(
    call: AggregateCall, operand: Callable[[Row], Any] | None, where: Callable[[Row], Any] | None
) -> Callable[[], tuple[Callable[[Row], None], Callable[[], Any]]]:
    """Return a function that makes, for one group, the pair (add a row, result).

    `operand` and `where` are the compiled parts of the call; no operand is COUNT(*). Nulls are skipped, except by
    COUNT(*) and COLLECT.
    """
    keeps_null = call.name == "COLLECT" or operand is None

    def make() -> tuple[Callable[[Row], None], Callable[[], Any]]:
        accumulator = accumulator_for(call.name, limit=call.limit, distinct=call.distinct)
        add = accumulator.add

        def add_row(row: Row) -> None:
            if where is not None and not where(row):
                return
            value = operand(row) if operand is not None else True
            if keeps_null or value is not None:
                add(value)

        return add_row, accumulator.result

    return make


# --- rows -------------------------------------------------------------------------------------------------------


def _closure(compiler: PatternCompiler, condition: ResolvedExpression | None) -> CompiledExpression | None:
    return None if condition is None else compiler.compile_expression(condition)


def _amount(closure: CompiledExpression | None, row: Row, clause: str, default: int) -> int:
    if closure is None:
        return default
    value = closure(row)
    if type(value) is not int or value < 0:
        raise QueryError("E2102", f"{clause} must be an Int of at least 0, got {value!r}")
    return value


def _order_columns(returns: ResolvedReturn, width: int) -> list[tuple[int, bool]]:
    columns = []
    fresh = width
    for condition, descending in returns.order:
        if isinstance(condition, int):
            columns.append((condition, descending))
        else:
            columns.append((fresh, descending))
            fresh += 1
    return columns


def _sort(rows: list[tuple[Any, ...]], column: int, descending: bool) -> None:
    """Sort stably. Nulls are last in ascending and first in descending order, NaN is next to them."""
    try:
        rows.sort(key=lambda row: _order_key(row[column]), reverse=descending)
    except TypeError as error:
        raise QueryError("E2102", "ORDER BY found values of types that have no common order") from error


def _order_key(value: Any) -> tuple[int, Any]:
    if value is None:
        return (2, None)
    return (1, None) if value != value else (0, value)  # noqa: PLR0124 - NaN alone is not itself


def _distinct(rows: list[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    first: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        first.setdefault(tuple([distinct_key(value) for value in row[:width]]), row)
    return list(first.values())


def _exporters(
    projections: Sequence[ResolvedExpression], schema: Schema
) -> list[Callable[[Any], Any] | None] | None:
    """Return, by column, the function that converts elements to dictionaries; None if no column can have elements."""

    def export(value: Any) -> Any:
        return _elements_to_dicts(value, schema)

    exporters: list[Callable[[Any], Any] | None] = [
        export if _may_hold_elements(p) else None for p in projections
    ]
    return exporters if any(exporters) else None


def _elements_to_dicts(value: Any, schema: Schema) -> Any:
    if type(value) is Element:
        return element_to_dict(value, schema)
    return [_elements_to_dicts(item, schema) for item in value] if type(value) is list else value


def _may_hold_elements(condition: ResolvedExpression) -> bool:
    return condition.type.kind in ("Node", "Edge", "List", "Any", "Union")
