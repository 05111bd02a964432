"""BEGIN, COMMIT, ROLLBACK, SAVEPOINT, sessions, TICK, TRIGGER and INSPECT; the table of all statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vedette.engine.context.open_transaction import OpenTransaction
from vedette.engine.context.request import StatementRequest
from vedette.engine.context.result import Result
from vedette.engine.statements import execution
from vedette.engine.statements.compile import CompiledInspect, CompiledTick
from vedette.engine.statements.explain import explain_statement, profile_statement
from vedette.engine.statements.queue import CONSUME_STATEMENTS
from vedette.engine.statements.watch import WATCH_STATEMENTS
from vedette.errors import AnalysisError, MutationError, TimeError, TransactionError
from vedette.graph.rules import compile_rule_filter, trigger_rule
from vedette.language.compile.execution_context import Row
from vedette.language.compile.queries import element_to_dict
from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import IdReference

if TYPE_CHECKING:
    from vedette.engine.session.session import Session

__all__ = ["STATEMENTS", "reject_in_aborted_transaction"]

Handler = Callable[[StatementRequest], Result]
MAX_TICKS = 1_000_000_000


# --- transactions -----------------------------------------------------------------------------------------------


def _begin(request: StatementRequest) -> Result:
    session, database = request.session, request.database
    if session.transaction is not None:
        raise _already_active("COMMIT or ROLLBACK it first")
    statement = request.prepared.statement
    assert isinstance(statement, ast.Begin)
    with session.lock_scope:
        serializable = statement.isolation == "SERIALIZABLE"
        session.transaction = OpenTransaction(database, serializable=serializable, bindings=session.bindings)
    return Result()


def _commit(request: StatementRequest) -> Result:
    session = request.session
    opened = _open_transaction(session)
    session.admit()
    result = Result()
    with session.lock_scope:
        committed = False
        try:
            if opened.abort_reason is not None:  # aborted while it waited for the lock
                raise _rolled_back(opened)
            deliveries = request.database.watching.consuming.settlement
            deliveries.check_enlisted(opened.enlisted_deliveries)
            if opened.transaction.before_images:  # a read-only transaction is serialized at its start
                opened.check_reads()
            result.warnings = tuple(
                execution.commit_transaction(
                    session,
                    opened.transaction,
                    opened.now,
                    result,
                    started=opened.base_sequence,
                    explicit=True,
                    meta=deliveries.notes_for(opened.enlisted_deliveries),
                )
            )
            committed = True
            deliveries.complete(opened.enlisted_deliveries)
        finally:
            opened.end(session, committed=committed)
    return result


def _rollback(request: StatementRequest) -> Result:
    session = request.session
    opened = _open_transaction(session)
    statement = request.prepared.statement
    assert isinstance(statement, ast.Rollback)
    with request.session.lock_scope:
        if statement.savepoint is None:
            opened.end(session)
        else:
            opened.check_usable()
            opened.rollback_to(statement.savepoint, session)
            request.database.watching.publish_uncommitted(opened.transaction)
    return Result()


def _savepoint(request: StatementRequest) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.Savepoint)
    _open_transaction(request.session).savepoint(statement.name, request.session.bindings)
    return Result()


def _open_transaction(session: Session) -> OpenTransaction:
    if session.transaction is None:
        raise TransactionError("E5004", "no transaction is active: BEGIN one first")
    return session.transaction


def _already_active(advice: str) -> TransactionError:
    return TransactionError("E5001", f"transaction already active: {advice}")


def _rolled_back(opened: OpenTransaction) -> TransactionError:
    return TransactionError(
        "E5005", f"The transaction was aborted ({opened.abort_reason}) and is rolled back now"
    )


def reject_in_aborted_transaction(session: Session, statement: ast.Statement) -> Result:
    """COMMIT of an aborted transaction rolls it back and raises; every other statement is rejected."""
    opened = _open_transaction(session)
    if not isinstance(statement, ast.Commit):
        opened.check_usable()
    with session.lock_scope:
        opened.end(session)
    raise _rolled_back(opened)


# --- sessions and time ------------------------------------------------------------------------------------------


def _begin_session(request: StatementRequest) -> Result:
    with request.session.lock_scope:
        request.session.push_actor(_actor_id(request))
    return Result()


def _actor_id(request: StatementRequest) -> str:
    statement, prepared = request.prepared.statement, request.prepared
    assert isinstance(statement, ast.BeginSession)
    name = statement.actor.name
    if not isinstance(name, str):
        value = request.constants[prepared.literals + prepared.parameters.index(name.name)]
        return value if isinstance(value, str) else ""
    quoted = isinstance(statement.actor, IdReference) and statement.actor.quoted
    return name if quoted else request.session.bindings.get(name, name)


def _end_session(request: StatementRequest) -> Result:
    with request.session.lock_scope:
        request.session.pop_actor()
    return Result()


def _tick(request: StatementRequest) -> Result:
    database = request.database
    if request.session.transaction is not None:
        raise _already_active("TICK ends what is pending, so COMMIT first")
    request.session.admit()
    with request.session.lock_scope:
        _check_meta(request, "SET", "_TickState")
        amount = _tick_amount(request, request.executable())
        database.check_writable()
        commit = database.state.advance_ticks(amount, database.clock.now())
        database.log_writer.append(commit.sequence, commit)
        database.watching.ticked(commit)
    return Result()


def _tick_amount(request: StatementRequest, executable: CompiledTick) -> int:
    if executable.value is None:
        return 1
    context, _ = execution.statement_context(request.session, request.constants)
    value = executable.value([context])
    if type(value) is not int or not 0 < value <= MAX_TICKS:
        text = f"TICK needs an Int from 1 to {MAX_TICKS:,}, got {value!r}"
        raise TimeError("E9001", text, fields={"amount": value})
    return value


def _trigger(request: StatementRequest) -> Result:
    request.session.admit()
    with request.session.lock_scope:
        _check_meta(request, "SET", "_RuleDef")
        return _run_rule(request)


def _check_meta(request: StatementRequest, operation: str, type_name: str) -> None:
    """Time and rules affect everyone: under policies, an actor needs an explicit permission."""
    _, guard = execution.statement_context(request.session, ())
    if guard is not None:
        guard.check_meta(operation, type_name)


def _run_rule(request: StatementRequest) -> Result:
    session, state = request.session, request.database.state
    statement = request.prepared.statement
    assert isinstance(statement, ast.Trigger)
    rule = state.program.rules.get(statement.rule)
    if rule is None:
        raise MutationError(
            "E3601", f"Rule '{statement.rule}' was not found", fields={"rule": statement.rule}
        )
    opened = session.transaction
    if opened is not None:
        opened.check_usable()
    transaction = opened.transaction if opened is not None else state.begin()
    now = opened.now if opened is not None else request.database.statement_time()
    context = execution.rule_context(session, transaction, now, rule)
    context.constants = request.constants
    analysis = request.prepared.analysis_context(request.signature, state.schema)
    where, size = compile_rule_filter(
        state.schema.rules[rule.name], statement.where, state.plan_context, analysis
    )
    result = Result(columns=("fired",), rows=[(trigger_rule(rule, context, where, size),)])
    if opened is None:
        result.warnings = tuple(execution.commit_transaction(session, transaction, now, result))
    return result


# --- inspection -------------------------------------------------------------------------------------------------


def _inspect(request: StatementRequest) -> Result:
    database = request.database
    with request.session.lock_scope:
        executable: CompiledInspect = request.executable()
        context, _ = execution.statement_context(request.session, request.constants, layer0=True)
        row: Row = [None] * executable.size
        row[0] = context
        element = context.view.get(str(executable.target(row)))
        image: dict[str, Any] = {"found": element is not None}
        if element is not None:
            image.update(element_to_dict(element, database.schema))
            if element.targets is not None:
                image["_targets"] = list(element.targets)
    items: list[tuple[str, str]] = []
    for name, column in executable.items or (("*", "*"),):
        items += [(each, each) for each in image] if name == "*" else [(name, column)]
    unknown = [name for name, _ in items if name not in image and element is not None]
    if unknown:
        raise AnalysisError("E2002", f"Unknown attribute '{unknown[0]}' on type '{image['_type']}'")
    return Result(
        columns=tuple(column for _, column in items), rows=[tuple(image.get(name) for name, _ in items)]
    )


STATEMENTS: Mapping[type, Handler] = {
    ast.Begin: _begin,
    ast.Commit: _commit,
    ast.Rollback: _rollback,
    ast.Savepoint: _savepoint,
    ast.BeginSession: _begin_session,
    ast.EndSession: _end_session,
    ast.Tick: _tick,
    ast.Trigger: _trigger,
    ast.Inspect: _inspect,
    ast.Explain: explain_statement,
    ast.Profile: profile_statement,
    **WATCH_STATEMENTS,
    **CONSUME_STATEMENTS,
}
