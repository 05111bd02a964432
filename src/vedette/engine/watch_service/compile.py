"""Compiles WATCH statements to shapes: resolved once for all constants, compiled for the current schema."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vedette.engine.state.graph_state import GraphState
from vedette.errors import WatchError
from vedette.graph.actions import CompiledAction, compile_action
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.resolve.actions import resolve_action
from vedette.language.resolve.analysis import split_conjuncts
from vedette.language.resolve.queries import ResolvedReturn, resolve_return
from vedette.language.resolve.scope import AnalysisContext, ExpressionSite, Scope
from vedette.language.resolve.tree import ResolvedExpression, ResolvedPattern
from vedette.language.syntax import statements as ast
from vedette.language.syntax.declarations import PolicyDeclaration
from vedette.language.syntax.expressions import Expression
from vedette.policy.dependencies import PolicyDependencies
from vedette.watch.options import WatchOptions, invalid_option
from vedette.watch.shapes.conditions import computed_expressions
from vedette.watch.shapes.resolver import SessionValue, WatchResolver
from vedette.watch.shapes.shape import ResolvedWatch, WatchShape
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.context.request import StatementRequest

__all__ = ["CompiledWatch", "compile_watch"]

_ACTION_SITE = ExpressionSite(allows_session_bindings=True)


class CompiledWatch:
    """A shape, the session values its watches capture on creation, and the actions of a trigger."""

    __slots__ = ("actions", "captures", "options", "request", "shape", "size")

    def __init__(
        self,
        request: StatementRequest,
        options: WatchOptions,
        shape: WatchShape,
        captures: tuple[SessionValue, ...],
        actions: tuple[CompiledAction, ...],
        size: int,
    ) -> None:
        self.request = request
        """The statement it was first compiled for, kept to recompile after a schema change."""
        self.options = options
        self.shape = shape
        self.captures = captures
        self.actions = actions
        self.size = size
        """Number of registers that the actions need."""

    def refiltered(self, filter: Expression | None) -> CompiledWatch:
        """The same watch with another filter."""
        return compile_watch(
            self.request, replace(self.options, filter=filter), guarded=self.shape.checks_policies
        )

    def attach_actions(self, watch: Watch) -> None:
        """Give the watch this compilation's actions, which match the schema and the captures."""
        if self.actions:
            watch.details.actions, watch.details.actions_size = self.actions, self.size


def compile_watch(request: StatementRequest, options: WatchOptions, *, guarded: bool) -> CompiledWatch:
    """Resolve and compile the statement. Raises with all its errors."""
    statement = request.prepared.statement
    assert isinstance(statement, ast.Watch)
    state = request.database.state
    analysis = request.prepared.analysis_context(request.signature, state.schema)
    scope = Scope(analysis)
    resolver = WatchResolver(analysis)
    pattern = resolver.resolve_pattern(statement.pattern, statement.where, scope)
    narrowed = resolver.resolve_condition(options.filter, scope)
    returns = resolve_return(resolver, statement.returns, scope) if statement.returns is not None else None
    if returns is not None and statement.returns is not None:
        _check_columns(analysis, statement.returns, returns)
    order = tuple((resolver.resolve(t.expression, scope), t.descending) for t in options.ordering.terms)
    consumes = options.mode == "consume"
    if consumes and options.serialize_by is not None:
        order = (*order, (resolver.resolve(options.serialize_by, scope), False))
    where = (*pattern.where, *split_conjuncts(narrowed), *resolver.target_conditions)
    whole = ResolvedPattern(pattern.elements, where)
    with resolver.at_site(_ACTION_SITE):
        actions = [each for action in statement.actions for each in resolve_action(resolver, action, scope)]
    captures = tuple(
        resolver.session_values
    )  # policies change, so a watch must not hold references to what they mention
    policy_view = PolicyDependencies(resolver, state.schema.policies.values() if guarded else ())
    policy_view.collect(whole, computed_expressions(returns, order))
    analysis.raise_if_any()
    if statement.actions and returns is not None and (returns.aggregates or returns.distinct):
        raise WatchError(
            "E8009",
            "ON MATCH DO runs for matches; a watch that returns groups or distinct rows has none: create two watches",
        )
    if statement.actions and options.visibility == "immediate":
        raise invalid_option("visibility", "ON MATCH DO runs after commits; allowed with it is committed")
    if order and returns is not None and returns.aggregates:
        raise WatchError("E8009", "Invalid watch option 'ordering': groups have no attribute to order by")
    resolved = ResolvedWatch(
        pattern=whole,
        returns=returns,
        order=order,
        captures=captures,
        register_count=analysis.register_count,
        statement=statement,
        policy_conditions=tuple(policy_view.conditions),
        full_scan_types=frozenset(policy_view.rescan_types),
        is_consume=consumes,
    )
    shape = WatchShape(
        resolved,
        state.plan_context,
        guarded=guarded,
        masked=_maskable_attributes(state) if guarded else frozenset(),
    )
    compiler = PatternCompiler(state.plan_context)
    acts = tuple(
        compile_action(action, compiler, state.tables, analysis.register_count) for action in actions
    )
    return CompiledWatch(request, options, shape, captures, acts, analysis.register_count)


def _check_columns(analysis: AnalysisContext, clause: ast.Return, returns: ResolvedReturn) -> None:
    """Events are keyed by column name, so two different projections must not share one."""
    seen: dict[str, ResolvedExpression] = {}
    for name, projection in zip(returns.columns, returns.projections, strict=True):
        if seen.setdefault(name, projection) != projection:
            analysis.report("E2005", f"Two columns are called '{name}': rename one with AS", clause.span)


def _maskable_attributes(state: GraphState) -> frozenset[str]:
    declared: list[PolicyDeclaration] = list(state.schema.policies.values())
    return frozenset(
        operation.attribute
        for policy in declared
        for operation in policy.operations
        if operation.attribute is not None and operation.operation == "MATCH"
    )
