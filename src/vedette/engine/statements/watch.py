"""WATCH and the statements that manage watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vedette.engine.context.request import Request
from vedette.engine.context.result import Result
from vedette.engine.statements import execution
from vedette.language.compile.patterns import PatternChains
from vedette.language.compile.queries import BindingQuery
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.queries import resolve_blocks
from vedette.language.resolve.scope import Place, Scope
from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import Attribute, Expression

__all__ = ["WATCH_STATEMENTS"]


def _watch(request: Request) -> Result:
    watch = request.database.watching.creation.create(request)
    return Result(handle=request.database.watching.id_of(watch))


def _manage(request: Request) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.ManageWatch)
    _act(request, statement, _handle(request, statement.handle))
    return Result()


def _alter(request: Request) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.AlterWatch)
    _act(request, statement, _handle(request, statement.handle))
    return Result()


def _manage_matching(request: Request) -> Result:
    """`MATCH s: _Watch WHERE … DO CANCEL WATCH s.id`: bindings first, then one after another."""
    statement = request.prepared.statement
    assert isinstance(statement, ast.MatchManage)
    for id in _matching_handles(request, statement):
        _act(request, statement.action, id)
    return Result()


def _act(request: Request, action: ast.ManageWatch | ast.AlterWatch, id: str) -> None:
    watching = request.database.watching
    with request.session.turn:
        watch = watching.management.find(request.session, id)
    if isinstance(action, ast.ManageWatch):
        watching.management.manage(request.session, watch, action.operation)
    else:
        watching.management.alter(request, watch, action.options)


def _handle(request: Request, expression: Expression) -> str:
    state = request.database.state
    frame = request.prepared.frame(request.signature, state.schema)
    with request.session.turn:
        resolved = PatternResolver(frame, Place(bindings=True)).resolve(expression, Scope(frame))
        frame.finish()
        context, _ = execution.statement_context(request.session, request.constants)
        return str(PatternChains(state.plan_context).id(resolved)([context]))


def _matching_handles(request: Request, statement: ast.MatchManage) -> list[str]:
    state = request.database.state
    with request.session.turn:
        frame = request.prepared.frame(request.signature, state.schema)
        scope = Scope(frame)
        resolver = PatternResolver(frame)
        query = resolve_blocks(resolver, statement.blocks, statement.optional, scope)
        handle = statement.action.handle
        written = handle.base if isinstance(handle, Attribute) and handle.name == "id" else handle
        resolved = resolver.resolve(written, scope)
        frame.finish()
        chains = PatternChains(state.plan_context)
        context, _ = execution.statement_context(request.session, request.constants, layer0=True)
        pick = chains.id(resolved)
        rows: list[Any] = BindingQuery(query, chains, frame.size).run(context)
        return list(dict.fromkeys(str(pick(row)) for row in rows))


WATCH_STATEMENTS: Mapping[type, Callable[[Request], Result]] = {
    ast.Watch: _watch,
    ast.ManageWatch: _manage,
    ast.AlterWatch: _alter,
    ast.MatchManage: _manage_matching,
}
