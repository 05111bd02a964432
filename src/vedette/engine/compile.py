"""Statements ▸ executables: resolved against the schema, planned against the graph, ready to run many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vedette.engine.prepare import Prepared
from vedette.engine.returning import ReturningClause, compile_returning
from vedette.engine.state import GraphState
from vedette.graph.actions import Act, compile_action
from vedette.graph.defaults import left_out
from vedette.language import statements as ast
from vedette.language.compile_expressions import Closure
from vedette.language.compile_queries import BindingQuery, RowQuery
from vedette.language.compile_steps import Observer, PatternChains
from vedette.language.plan import Plan
from vedette.language.resolve_mutations import ResolvedLink, ResolvedSpawn, resolve_action
from vedette.language.resolve_patterns import PatternResolver
from vedette.language.resolve_queries import resolve_blocks, resolve_return
from vedette.language.resolved import EdgeElement, NodeElement
from vedette.language.scope import Place, Scope

__all__ = ["Amount", "Executable", "Mutation", "Query", "Referenced", "compile_statement"]

_MUTATION = Place(bindings=True)


@dataclass(slots=True, kw_only=True)
class Query:
    """MATCH … RETURN: reads rows."""

    rows: RowQuery
    plans: Sequence[Plan]
    layer0: bool


@dataclass(slots=True, kw_only=True)
class Mutation:
    """Actions, once, or for every match of a pattern."""

    actions: tuple[Act, ...]
    bindings: BindingQuery | None
    returning: ReturningClause | None
    size: int
    plans: Sequence[Plan]
    layer0: bool
    warnings: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Referenced:
    """INSPECT: one element by its id, with a projection of its own."""

    target: Closure
    project: tuple[Closure, ...]
    columns: tuple[str, ...]
    slot: int
    size: int
    plans: Sequence[Plan] = ()


@dataclass(slots=True, kw_only=True)
class Amount:
    """A statement whose only question is the value of one expression: TICK."""

    value: Closure | None
    plans: Sequence[Plan] = field(default=())


Executable = Query | Mutation | Referenced | Amount


def compile_statement(
    prepared: Prepared,
    statement: ast.Statement,
    signature: tuple[type, ...],
    state: GraphState,
    observer: Observer | None = None,
) -> Executable:
    """Everything that can be known before the statement runs; raises with every mistake in it."""
    compiler = _Compiler(prepared, signature, state, observer)
    return compiler.compile(statement)


class _Compiler:
    def __init__(
        self, prepared: Prepared, signature: tuple[type, ...], state: GraphState, observer: Observer | None
    ) -> None:
        self.state = state
        self.frame = prepared.frame(signature, state.schema)
        self.scope = Scope(self.frame)
        self.chains = PatternChains(state.plan_context, observer)

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

    def _query(self, statement: ast.Match) -> Query:
        resolver = PatternResolver(self.frame)
        query = resolve_blocks(resolver, statement.blocks, statement.optional, self.scope)
        returns = resolve_return(resolver, statement.returns, self.scope)
        self.frame.finish()
        rows = RowQuery(query, returns, self.chains, self.frame.size, self.state.schema)
        return Query(rows=rows, plans=self.chains.plans, layer0=self._mentions_layer0())

    def _inspect(self, statement: ast.Inspect) -> Referenced:
        resolver = PatternResolver(self.frame, _MUTATION)
        target = self.chains.id(resolver.resolve(statement.target, self.scope))
        slot = self.frame.register()
        names = [projection.alias or _inspected(projection) for projection in statement.projections]
        self.frame.finish()
        return Referenced(target=target, project=(), columns=tuple(names), slot=slot, size=self.frame.size)

    def _tick(self, statement: ast.Tick) -> Amount:
        if statement.amount is None:
            return Amount(value=None)
        resolver = PatternResolver(self.frame)
        amount = resolver.resolve(statement.amount, self.scope)
        self.frame.finish()
        return Amount(value=self.chains.condition(amount))

    def _mutation(
        self,
        actions: Sequence[ast.Action],
        blocks: Sequence[ast.MatchBlock],
        optional: Sequence[ast.MatchBlock],
    ) -> Mutation:
        resolver = PatternResolver(self.frame)
        query = resolve_blocks(resolver, blocks, optional, self.scope) if blocks else None
        resolver.place = _MUTATION
        resolved = [each for action in actions for each in resolve_action(resolver, action, self.scope)]
        self.frame.finish()
        bindings = BindingQuery(query, self.chains, self.frame.size) if query is not None else None
        tables = self.state.tables
        acts = tuple(compile_action(action, self.chains, tables, self.frame.size) for action in resolved)
        return Mutation(
            actions=acts,
            bindings=bindings,
            returning=compile_returning(actions[-1], self.state.schema),
            size=self.frame.size,
            plans=self.chains.plans,
            layer0=self._mentions_layer0(),
            warnings=self._warnings(resolved),
        )

    def _warnings(self, resolved: Sequence[Any]) -> tuple[str, ...]:
        warnings: list[str] = []
        for action in resolved:
            if isinstance(action, ResolvedLink):
                warnings += left_out(self.state.tables.types[action.edge], action.assignments)
                warnings += self._warnings([t for t in action.targets if isinstance(t, ResolvedSpawn)])
            elif isinstance(action, ResolvedSpawn):
                warnings += left_out(self.state.tables.types[action.type], action.assignments)
        return tuple(warnings)

    def _mentions_layer0(self) -> bool:
        """Whether any pattern of the statement ranges over the engine's own types, which no graph holds."""
        for plan in self.chains.plans:
            for element in plan.pattern.elements:
                names: Sequence[str] = ()
                if isinstance(element, NodeElement):
                    names = element.types
                elif isinstance(element, EdgeElement):
                    names = element.edges
                if any(name.startswith("_") for name in names):
                    return True
        return False


def _inspected(projection: Any) -> str:
    expression = projection.expression
    return "*" if expression is None else str(getattr(expression, "name", "expr"))
