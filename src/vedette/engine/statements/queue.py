"""ACK, NACK, EXTEND, REDRIVE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vedette.engine.context.request import StatementRequest, resolve_id
from vedette.engine.context.result import Result
from vedette.engine.watch_service.options import option_evaluator, with_option
from vedette.errors import InvalidStatement
from vedette.language.syntax import statements as ast
from vedette.watch.options import check_duration, invalid_option

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.queue_service.settlement import Settlement

__all__ = ["CONSUME_STATEMENTS", "as_consumer"]

_NACK_OPTIONS = "no_retry, delay: Duration, cause: String"
_EXTEND_OPTIONS = "by: Duration"


def _ack(request: StatementRequest) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.Ack)
    return _deliveries(request).ack(request.session, [resolve_id(request, statement.delivery)])


def _nack(request: StatementRequest) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.Nack)
    given = _options(request, statement.options, {"no_retry", "delay", "cause"}, _NACK_OPTIONS)
    if any(option.name == "no_retry" and option.value is not None for option in statement.options):
        raise invalid_option("no_retry", "it takes no value; omit it to allow another attempt")
    if "no_retry" in given and "delay" in given:
        raise invalid_option("delay", "with no_retry there is no next attempt to delay")
    return _deliveries(request).nack(
        request.session,
        resolve_id(request, statement.delivery),
        retry="no_retry" not in given,
        delay=_span(given, "delay"),
        cause=_cause(given),
    )


def _extend(request: StatementRequest) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.Extend)
    given = _options(request, statement.options, {"by"}, _EXTEND_OPTIONS)
    return _deliveries(request).extend(
        request.session, resolve_id(request, statement.delivery), _span(given, "by")
    )


def _redrive(request: StatementRequest) -> Result:
    statement = request.prepared.statement
    assert isinstance(statement, ast.Redrive)
    letters = request.database.watching.consuming.dead_letters
    id = resolve_id(request, statement.target)
    if statement.watch:
        return letters.redrive_all(request.session, id)
    return letters.redrive(request.session, id)


def _deliveries(request: StatementRequest) -> Settlement:
    return request.database.watching.consuming.settlement


def _options(
    request: StatementRequest, options: tuple[ast.WatchOption, ...], known: set[str], allowed: str
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    with request.session.lock_scope:
        evaluate = option_evaluator(request)
        for option in options:
            if option.name not in known:
                raise invalid_option(option.name, f"allowed are {allowed}")
            if option.name in given:
                raise invalid_option(option.name, "it is specified twice")
            value = option.value
            plain = value is None or isinstance(value, ast.OptionValue)
            given[option.name] = None if plain else evaluate(value)  # type: ignore[arg-type]
    return given


def _span(given: Mapping[str, Any], name: str) -> timedelta | None:
    if name not in given:
        return None
    return check_duration(name, given[name])


def _cause(given: Mapping[str, Any]) -> str | None:
    value = given.get("cause")
    if "cause" in given and not isinstance(value, str):
        raise invalid_option("cause", f"allowed is a String, got {value!r}")
    return value


def as_consumer(database: Database, text: str) -> str:
    """The statement with `mode: consume` if it has no mode. Its constants and parameters do not change."""
    parsed = database.statements.parse_uncached(text)
    statement = parsed[0].statement if len(parsed) == 1 else None
    if not isinstance(statement, ast.Watch):
        raise InvalidStatement("E1101", "consume() takes one WATCH statement")
    mode = next((option.value for option in statement.options if option.name == "mode"), None)
    if mode is None:
        return with_option(text, statement, "mode", "consume")
    if mode != ast.OptionValue("consume"):
        raise invalid_option("mode", "allowed in consume() is consume; use watch() for mode: watch")
    return text


CONSUME_STATEMENTS: Mapping[type, Callable[[StatementRequest], Result]] = {
    ast.Ack: _ack,
    ast.Nack: _nack,
    ast.Extend: _extend,
    ast.Redrive: _redrive,
}
