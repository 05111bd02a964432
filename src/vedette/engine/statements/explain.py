"""EXPLAIN: the plan of a statement. PROFILE: the plan with the actual counts of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vedette.engine.context.prepared import PreparedStatement
from vedette.engine.context.request import StatementRequest
from vedette.engine.context.result import Result
from vedette.engine.statements import execution
from vedette.engine.statements.compile import CompiledMutation, CompiledQuery, compile_statement
from vedette.engine.statements.explain_watch import explain_watch
from vedette.errors import InvalidStatement
from vedette.language.compile.execution_context import Row
from vedette.language.compile.steps import RowConsumer
from vedette.language.plan.steps import (
    BindEdgeTargets,
    CheckType,
    ExpandEdges,
    FilterRows,
    FollowPath,
    Plan,
    PlanStep,
    ScanEdges,
    ScanNodes,
    SeekById,
    SeekByIndex,
)
from vedette.language.resolve.explain import explain_expression, explain_target, variable_names
from vedette.language.syntax import statements as ast

__all__ = ["explain_statement", "profile_statement"]

EXPLAINED = (ast.Match, ast.MatchMutate, ast.Spawn, ast.Kill, ast.Link, ast.Unlink, ast.Set)


def explain_statement(request: StatementRequest) -> Result:
    statement = request.prepared.statement
    if isinstance(statement, ast.Explain) and isinstance(statement.statement, ast.Watch):
        return explain_watch(request, statement.statement)
    inner = _inner(request.prepared)
    with request.session.lock_scope:
        executable = compile_statement(request.prepared, inner, request.signature, request.database.state)
    names = _names_of(executable.plans)
    rows = [
        (*_describe(step, names), _estimate(request, plan.estimates[index]))
        for plan in executable.plans
        for index, step in enumerate(plan.steps)
    ]
    return Result(columns=("step", "detail", "estimate"), rows=rows)


def profile_statement(request: StatementRequest) -> Result:
    """Run the statement and report per step how often it was entered and how many rows it produced."""
    inner = _inner(request.prepared)
    session, database = request.session, request.database
    counter = _Counter()
    if not isinstance(inner, ast.Match):
        session.admit()
    with session.lock_scope:
        executable = compile_statement(
            request.prepared, inner, request.signature, database.state, counter.observe
        )
        if isinstance(executable, CompiledQuery):
            rows, _ = execution.run_query(session, executable, request.constants)
            result = Result(rows=rows)
        else:
            assert isinstance(executable, CompiledMutation)
            result = execution.run_mutation(session, executable, request.constants)
    result.columns = ("step", "detail", "estimate", "entered", "passed")
    found = len(result.rows)
    names = _names_of(executable.plans)
    result.rows = [
        (*_describe(step, names), _estimate(request, plan.estimates[index]), *counter.counts(plan, index))
        for plan in executable.plans
        for index, step in enumerate(plan.steps)
    ]
    result.rows.append(("result", f"{found} rows", None, None, found))
    return result


def _inner(prepared: PreparedStatement) -> ast.Statement:
    statement = prepared.statement
    assert isinstance(statement, (ast.Explain, ast.Profile))
    inner = statement.statement
    if not isinstance(inner, EXPLAINED):
        word = type(statement).__name__.upper()
        also = "; EXPLAIN for WATCH, too" if word == "PROFILE" else " and WATCH"
        raise InvalidStatement("E1102", f"{word} is for MATCH, SPAWN, KILL, LINK, UNLINK, SET{also}")
    return inner


class _Counter:
    """Counts how often each step is entered. The count of the next step is the number of rows produced."""

    def __init__(self) -> None:
        self._entered: dict[tuple[int, int], int] = {}

    def observe(self, plan: Plan, index: int, chain: RowConsumer) -> RowConsumer:
        key = (id(plan), index)
        self._entered[key] = 0

        def counted(row: Row) -> bool:
            self._entered[key] += 1
            return chain(row)

        return counted

    def counts(self, plan: Plan, index: int) -> tuple[int, int | None]:
        return self._entered.get((id(plan), index), 0), self._entered.get((id(plan), index + 1))


def _names_of(plans: Sequence[Plan]) -> dict[int, str]:
    return {slot: name for plan in plans for slot, name in variable_names(plan.pattern).items()}


def _estimate(request: StatementRequest, estimate: float) -> float | None:
    """Estimates reveal the size of the whole graph, so an actor under policies gets none."""
    if request.session.actor is not None and request.database.schema.policies:
        return None
    return round(min(estimate, 1e9), 1)


def _describe(step: PlanStep, names: Mapping[int, str]) -> tuple[str, str]:
    match step:
        case SeekById():
            return "by id", f"{step.node.name}.id = {explain_expression(step.key)}"
        case SeekByIndex():
            return (
                "index",
                f"{step.node.name}: {step.owner}.{step.attribute} = {explain_expression(step.key)}",
            )
        case ScanNodes():
            return "scan", f"{step.node.name}: {_names(step.node.types)}"
        case ScanEdges():
            return "scan edges", _names(step.edge.edge_types)
        case ExpandEdges():
            return (
                "expand",
                f"{_names(step.edge.edge_types)} from {explain_target(step.edge.targets[step.position], names)}",
            )
        case BindEdgeTargets():
            return "unfold", _names(step.edge.edge_types)
        case FollowPath():
            ends = f"{explain_target(step.path.source, names)} to {explain_target(step.path.target, names)}"
            return "follow", f"{step.path.edge} {ends}, {step.path.min_depth}..{step.path.max_depth} edges"
        case CheckType():
            return "check type", f"{step.node.name}: {_names(step.node.types)}"
        case FilterRows():
            return "filter", explain_expression(step.condition)


def _names(names: Sequence[str]) -> str:
    return " | ".join(names[:5]) + (" | …" if len(names) > 5 else "")
