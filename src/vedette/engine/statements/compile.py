"""Compiles statements: resolved against the schema, planned against the graph, and executable many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vedette.engine.context.prepared import PreparedStatement
from vedette.engine.state.graph_state import GraphState
from vedette.engine.statements.returning import ReturningClause, compile_returning
from vedette.graph.actions import CompiledAction, compile_action
from vedette.graph.value_builders import missing_value_warnings
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.compile.patterns import PatternCompiler, StepWrapper
from vedette.language.compile.queries import BindingQuery, RowQuery
from vedette.language.plan.steps import Plan
from vedette.language.resolve.actions import ResolvedLink, ResolvedSpawn, resolve_action
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.queries import resolve_blocks, resolve_return
from vedette.language.resolve.scope import ExpressionSite, Scope
from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import Expression, Variable

__all__ = [
    "CompiledInspect",
    "CompiledMutation",
    "CompiledQuery",
    "CompiledTick",
    "Executable",
    "compile_statement",
]

_ACTION_SITE = ExpressionSite(allows_session_bindings=True)


@dataclass(slots=True, kw_only=True)
class CompiledQuery:
    """MATCH … RETURN."""

    rows: RowQuery
    plans: Sequence[Plan]
    uses_layer0: bool


@dataclass(slots=True, kw_only=True)
class CompiledMutation:
    """Actions, run once or for every match of a pattern."""

    actions: tuple[CompiledAction, ...]
    returned: range
    """The actions that RETURNING refers to."""
    bindings: BindingQuery | None
    returning: ReturningClause | None
    size: int
    plans: Sequence[Plan]
    uses_layer0: bool
    warnings: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class CompiledInspect:
    """INSPECT: one element by id, with a projection."""

    target: CompiledExpression
    items: tuple[tuple[str, str], ...]
    """(attribute, column) of each projection; empty: everything."""
    size: int
    plans: Sequence[Plan] = ()


@dataclass(slots=True, kw_only=True)
class CompiledTick:
    """TICK: the value of one expression."""

    value: CompiledExpression | None
    plans: Sequence[Plan] = field(default=())


Executable = CompiledQuery | CompiledMutation | CompiledInspect | CompiledTick


def compile_statement(
    prepared: PreparedStatement,
    statement: ast.Statement,
    signature: tuple[type, ...],
    state: GraphState,
    observer: StepWrapper | None = None,
) -> Executable:
    """Compile everything that is known before the statement runs. Raises with all its errors."""
    statement_compiler = _Compiler(prepared, signature, state, observer)
    return statement_compiler.compile(statement)


class _Compiler:
    def __init__(
        self,
        prepared: PreparedStatement,
        signature: tuple[type, ...],
        state: GraphState,
        observer: StepWrapper | None,
    ) -> None:
        self.state = state
        self.analysis = prepared.analysis_context(signature, state.schema)
        self.scope = Scope(self.analysis)
        self.compiler = PatternCompiler(state.plan_context, observer)

    def compile(self, statement: ast.Statement) -> Executable:
        match statement:
            case ast.Match():
                return self._query(statement)
            case ast.Inspect():
                return self._inspect(statement)
            case ast.Tick():
                return self._tick(statement)
            case ast.MatchMutate():
                return self._mutation(statement.actions, statement.blocks, statement.optional)
            case ast.Spawn() | ast.Kill() | ast.Link() | ast.Unlink() | ast.Set():
                return self._mutation((statement,), (), ())
        raise AssertionError(f"{type(statement).__name__} is not compiled")

    def _query(self, statement: ast.Match) -> CompiledQuery:
        resolver = PatternResolver(self.analysis)
        query = resolve_blocks(resolver, statement.blocks, statement.optional, self.scope)
        returns = resolve_return(resolver, statement.returns, self.scope)
        self.analysis.raise_if_any()
        rows = RowQuery(query, returns, self.compiler, self.analysis.register_count, self.state.schema)
        return CompiledQuery(rows=rows, plans=self.compiler.plans, uses_layer0=self.analysis.uses_layer0)

    def _inspect(self, statement: ast.Inspect) -> CompiledInspect:
        resolver = PatternResolver(self.analysis, _ACTION_SITE)
        target = self.compiler.compile_element_id(resolver.resolve(statement.target, self.scope))
        items = []
        for projection in statement.projections:
            name = _inspected(projection.expression)
            if name is None:
                text = "INSPECT returns attributes by name: RETURN name, _type or *"
                self.analysis.report("E2009", text, projection.span)
            else:
                items.append((name, projection.alias or name))
        self.analysis.raise_if_any()
        return CompiledInspect(target=target, items=tuple(items), size=self.analysis.register_count)

    def _tick(self, statement: ast.Tick) -> CompiledTick:
        if statement.amount is None:
            return CompiledTick(value=None)
        resolver = PatternResolver(self.analysis)
        amount = resolver.resolve(statement.amount, self.scope)
        self.analysis.raise_if_any()
        return CompiledTick(value=self.compiler.compile_expression(amount))

    def _mutation(
        self,
        actions: Sequence[ast.Action],
        blocks: Sequence[ast.MatchBlock],
        optional: Sequence[ast.MatchBlock],
    ) -> CompiledMutation:
        resolver = PatternResolver(self.analysis)
        query = resolve_blocks(resolver, blocks, optional, self.scope) if blocks else None
        with resolver.at_site(_ACTION_SITE):
            groups = [resolve_action(resolver, action, self.scope) for action in actions]
        resolved = [each for group in groups for each in group]
        self.analysis.raise_if_any()
        bindings = (
            BindingQuery(query, self.compiler, self.analysis.register_count) if query is not None else None
        )
        tables = self.state.tables
        acts = tuple(
            compile_action(action, self.compiler, tables, self.analysis.register_count) for action in resolved
        )
        return CompiledMutation(
            actions=acts,
            returned=_returning_range(actions, groups),
            bindings=bindings,
            returning=compile_returning(actions, self.state.schema),
            size=self.analysis.register_count,
            plans=self.compiler.plans,
            uses_layer0=self.analysis.uses_layer0,
            warnings=self._warnings(resolved),
        )

    def _warnings(self, resolved: Sequence[Any]) -> tuple[str, ...]:
        warnings: list[str] = []
        for action in resolved:
            if isinstance(action, ResolvedLink):
                warnings += missing_value_warnings(self.state.tables.types[action.edge], action.assignments)
                warnings += self._warnings([t for t in action.targets if isinstance(t, ResolvedSpawn)])
            elif isinstance(action, ResolvedSpawn):
                warnings += missing_value_warnings(self.state.tables.types[action.type], action.assignments)
        return tuple(warnings)


def _returning_range(actions: Sequence[ast.Action], groups: Sequence[Sequence[Any]]) -> range:
    """The compiled actions of the last action with RETURNING."""
    start = 0
    found = range(0)
    for action, group in zip(actions, groups, strict=True):
        if action.returning is not None:
            found = range(start, start + len(group))
        start += len(group)
    return found


def _inspected(expression: Expression | None) -> str | None:
    if expression is None:
        return "*"
    return expression.name if isinstance(expression, Variable) else None
