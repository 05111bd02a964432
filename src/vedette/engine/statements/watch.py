"""WATCH and the statements that manage watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vedette.engine.context.request import StatementRequest
from vedette.engine.context.result import Result
from vedette.engine.statements import execution
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.compile.queries import BindingQuery
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.queries import resolve_blocks
from vedette.language.resolve.scope import ExpressionSite, Scope
from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import Attribute, Expression

__all__ = ["WATCH_STATEMENTS"]


def _watch(request: StatementRequest) -> Result:
    watch = request.database.watching.creation.create(request)
    return Result(handle=request.database.watching.id_of(watch))


def _manage(request: StatementRequest) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.ManageWatch)
    _act(request, statement, _handle(request, statement.handle))
    return Result()


def _alter(request: StatementRequest) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.AlterWatch)
    _act(request, statement, _handle(request, statement.handle))
    return Result()


def _manage_matching(request: StatementRequest) -> Result:
    """`MATCH s: _Watch WHERE … DO CANCEL WATCH s.id`: find all handles first, then act on each."""
    statement = request.prepared.statement
    assert isinstance(statement, ast.MatchManage)
    for id in _matching_handles(request, statement):
        _act(request, statement.action, id)
    return Result()


def _act(request: StatementRequest, action: ast.ManageWatch | ast.AlterWatch, id: str) -> None:
    watching = request.database.watching
    with request.session.lock_scope:
        watch = watching.management.find(request.session, id)
    if isinstance(action, ast.ManageWatch):
        watching.management.manage(request.session, watch, action.operation)
    else:
        watching.management.alter(request, watch, action.options)


def _handle(request: StatementRequest, expression: Expression) -> str:
    state = request.database.state
    analysis = request.prepared.analysis_context(request.signature, state.schema)
    with request.session.lock_scope:
        resolved = PatternResolver(analysis, ExpressionSite(allows_session_bindings=True)).resolve(
            expression, Scope(analysis)
        )
        analysis.raise_if_any()
        context, _ = execution.statement_context(request.session, request.constants)
        return str(PatternCompiler(state.plan_context).compile_element_id(resolved)([context]))


def _matching_handles(request: StatementRequest, statement: ast.MatchManage) -> list[str]:
    state = request.database.state
    with request.session.lock_scope:
        analysis = request.prepared.analysis_context(request.signature, state.schema)
        scope = Scope(analysis)
        resolver = PatternResolver(analysis)
        query = resolve_blocks(resolver, statement.blocks, statement.optional, scope)
        handle = statement.action.handle
        written = handle.base if isinstance(handle, Attribute) and handle.name == "id" else handle
        resolved = resolver.resolve(written, scope)
        analysis.raise_if_any()
        compiler = PatternCompiler(state.plan_context)
        context, _ = execution.statement_context(request.session, request.constants, layer0=True)
        pick = compiler.compile_element_id(resolved)
        rows: list[Any] = BindingQuery(query, compiler, analysis.register_count).run(context)
        return list(dict.fromkeys(str(pick(row)) for row in rows))


WATCH_STATEMENTS: Mapping[type, Callable[[StatementRequest], Result]] = {
    ast.Watch: _watch,
    ast.ManageWatch: _manage,
    ast.AlterWatch: _alter,
    ast.MatchManage: _manage_matching,
}
