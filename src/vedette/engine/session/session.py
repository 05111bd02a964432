"""A session: executes statements one at a time, with its bindings, its actor and its transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vedette.engine.commit.lock import LockScope
from vedette.engine.context.open_transaction import OpenTransaction
from vedette.engine.context.prepared import PreparedStatement
from vedette.engine.context.request import StatementRequest
from vedette.engine.context.result import Result
from vedette.engine.queue_service.settlement import Settlement
from vedette.engine.session.jobs import Jobs
from vedette.engine.session.watch_handle import WatchHandle
from vedette.engine.statements import control, execution
from vedette.engine.statements.compile import Executable, compile_statement
from vedette.engine.statements.queue import as_consumer
from vedette.errors import (
    AnalysisError,
    InvalidStatement,
    PolicyError,
    StoreError,
    TransactionError,
    VedetteError,
)
from vedette.language.syntax import statements as ast
from vedette.values import Value
from vedette.watch.options import check_duration, invalid_option

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["Session", "merge_parameters"]

FORKED_PROCESS_MESSAGE = (
    "This data directory was opened before a fork and belongs to the parent process; open it in one process"
)


class Session:
    """A session with a database. May be used from any thread; statements are executed one at a time."""

    def __init__(self, database: Database, actor: str | None = None) -> None:
        if database.is_forked_copy:
            raise StoreError("E6002", FORKED_PROCESS_MESSAGE)
        self.database = database
        self.started_at: datetime = database.clock.now()
        self.bindings: dict[str, str] = {}
        """Names that SPAWN and LINK bound, for `#name` in later statements and transactions."""
        self.transaction: OpenTransaction | None = None
        self._actors: list[str] = []
        self.actor: str | None = None
        """The current actor; None in the system context."""
        self._has_fixed_actor = actor is not None
        """True if the session was opened for an actor, which then cannot change."""
        self._statement_lock = RLock()
        self.lock_scope = LockScope(database)
        self.allow_long_reads = True
        """If False, a long read raises SliceExceeded before it has any effect, instead of continuing in slices."""
        self.watch_limits: tuple[int, int] | None = None
        """Maximum number of watches in this session and in the database; None in embedded sessions: no limit."""
        self._closed = False
        with self.lock_scope:
            if actor is not None:
                self._push_actor(self._checked_actor(actor))
            self.id = database.state.new_id("s")
            with database.watching.layer0_changes.track(self):
                database.sessions[self.id] = self

    # --- public methods ---------------------------------------------------------------------------------------

    def execute(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> Result:
        """Execute exactly one statement. Parameters are given in a dict or as keywords."""
        if params:
            named = merge_parameters(params, named)
        with self._statement_lock:
            result = None
            try:
                result = self.execute_without_waiting(text, named)
                return result
            finally:
                if self.lock_scope.log_writer.durable_sequence < self.lock_scope.observed_sequence:
                    self._wait_durable([] if result is None else [result])

    def run(self, script: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> list[Result]:
        """Execute a script. It is parsed completely before anything runs, and stops at the first error."""
        if params:
            named = merge_parameters(params, named)
        with self._statement_lock:
            results: list[Result] = []
            try:
                statements, literals = self.prepared_script(script)
                for prepared in statements:  # one by one, so that the results before a failure are known
                    results.append(self.execute_prepared(prepared, literals, named, script))  # noqa: PERF401
                return results
            finally:
                self._wait_durable(results)

    def watch(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> WatchHandle:
        """Create a watch: `w = s.watch("WATCH t: Task … RETURN t")`, then `w.poll()` or `w.next()`."""
        if params:
            named = merge_parameters(params, named)
        with self._statement_lock:
            made: list[WatchHandle] = []
            try:
                prepared, literals = self.database.statements.prepare_one(text)
                if not isinstance(prepared.statement, ast.Watch):
                    text = "A WATCH statement is required here; use execute() or vedette run for others"
                    raise InvalidStatement("E1101", text)
                self._check_open()
                if self.transaction is not None:
                    self.transaction.check_usable()
                request = StatementRequest(self, prepared, prepared.constants(literals, named), text)
                made.append(WatchHandle(self, self.database.watching.creation.create(request)))
                return made[0]
            except BaseException:
                self._statement_failed()
                raise
            finally:
                self._wait_durable(made)  # so that the first poll returns the initial state

    def _wait_durable(self, made: Sequence[Result | WatchHandle]) -> None:
        """Wait for durability.

        If it fails, discard the watches that were created, because the caller never gets the handles.
        """
        try:
            self.database.wait_durable(self.lock_scope)
        except BaseException:
            self.discard_created_watches(made)
            raise

    def discard_created_watches(self, made: Sequence[Result | WatchHandle]) -> None:
        """End watches whose handles the caller never received."""
        handles = [each.id if isinstance(each, WatchHandle) else each.handle for each in made]
        with self.lock_scope:
            for handle in filter(None, handles):
                self.database.watching.management.discard(handle)

    def consume(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        /,
        *,
        prefetch: int = 10,
        timeout: float | None = None,
        **named: Any,
    ) -> Jobs:
        """Jobs to process: `for job in s.consume("WATCH … [mode: consume] …"): with job: …`.

        At most `prefetch` deliveries are open at a time. The loop ends if none arrives for `timeout` seconds.
        `mode: consume` is added if the statement has no mode.
        """
        if type(prefetch) is not int or prefetch < 1:
            raise invalid_option("prefetch", f"allowed is a positive integer, got {prefetch!r}")
        return Jobs(self.watch(as_consumer(self.database, text), params, **named), prefetch, timeout)

    def ack(self, delivery_ids: Sequence[str]) -> Result:
        """ACK each delivery, in its own transaction or in the open one. Returns when all are durable."""
        return self._settle_delivery(lambda deliveries: deliveries.ack(self, delivery_ids))

    def nack(
        self,
        delivery_id: str,
        *,
        retry: bool = True,
        delay: timedelta | None = None,
        cause: str | None = None,
    ) -> Result:
        """Return a delivery for another attempt, now or after `delay`, or dead-letter it."""
        span = None if delay is None else check_duration("delay", delay)
        if cause is not None and not isinstance(cause, str):
            raise invalid_option("cause", f"allowed is a String, got {cause!r}")
        return self._settle_delivery(
            lambda deliveries: deliveries.nack(self, delivery_id, retry=retry, delay=span, cause=cause)
        )

    def extend(self, delivery_id: str, by: timedelta | None = None) -> Result:
        """Extend the lease of a delivery: `by` from now, or another ack_timeout."""
        span = None if by is None else check_duration("by", by)
        return self._settle_delivery(lambda deliveries: deliveries.extend(self, delivery_id, span))

    def release(self, delivery_id: str) -> Result:
        """Return a delivery to its queue without counting an attempt."""
        return self._settle_delivery(lambda deliveries: deliveries.release(self, delivery_id))

    def renew(self, delivery_ids: Sequence[str]) -> list[str]:
        """Renew leases. Return the ids that this session still holds and that still match."""
        with self._statement_lock:
            self._check_open()
            return self.database.watching.consuming.settlement.renew(self, delivery_ids)

    def _settle_delivery(self, end: Callable[[Settlement], Result]) -> Result:
        """End deliveries without a statement text, otherwise like a statement."""
        with self._statement_lock:
            try:
                self._check_open()
                return self._run_statement(end, self.database.watching.consuming.settlement)
            finally:
                self.database.wait_durable(self.lock_scope)

    def attach(self, handle_or_name: str) -> WatchHandle:
        """Attach a reliable watch or a trigger. Only its actor or the system context may; else E8010."""
        with self._statement_lock:
            self._check_open()
            return WatchHandle(self, self.database.watching.management.attach(self, handle_or_name))

    def errors(self) -> list[Any]:
        """Records of all this session's watches since the last call."""
        return self.database.watching.session_errors(self)

    def admit(self) -> None:
        """Before a write: wait for room in the log queue and in watches that block writers."""
        self.database.admit_write()
        if self.database.watching.blocking_watches:
            self.database.watching.wait_for_room(self)

    def execute_without_waiting(self, text: str, values: Mapping[str, Any]) -> Result:
        """Execute one statement.

        The caller must not reveal the outcome before what `lock_scope` observed is durable.
        """
        self._check_open()
        return self._run_statement(self._execute, text, values)

    def _execute(self, text: str, values: Mapping[str, Any]) -> Result:
        prepared, literals = self.database.statements.prepare_one(text)
        return self._dispatch(prepared, literals, values, text)

    def prepared(self, text: str) -> tuple[PreparedStatement, tuple[Value, ...]]:
        """The only statement of a text, and the text's literals."""
        try:
            return self.database.statements.prepare_one(text)
        except VedetteError:
            self._statement_failed()
            raise

    def prepared_script(self, script: str) -> tuple[tuple[PreparedStatement, ...], tuple[Value, ...]]:
        """The statements of a script, parsed completely before anything runs, and the script's literals."""
        try:
            return self.database.statements.prepare_script(script)
        except VedetteError:
            self._statement_failed()
            raise

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self, *, lost: bool = False) -> None:
        """End the session. An open transaction is rolled back. Closing twice has no effect.

        `lost`: the client disappeared without closing. Each of its open deliveries counts as failed.
        """
        with self._statement_lock:
            if self._closed:
                return
            self._closed = True
            with self.lock_scope, self.database.watching.layer0_changes.track(self):
                if self.transaction is not None:
                    self.transaction.end(self)
                self.database.watching.management.end_session(self, lost=lost)
                self.database.sessions.pop(self.id, None)
            if self.database.watching.triggers and self.database.read_only is None:
                self.database.watching.triggers.run_pending(
                    self.lock_scope
                )  # a lost job may have been dead-lettered

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- actors -----------------------------------------------------------------------------------------------

    def push_actor(self, actor: str) -> None:
        """BEGIN SESSION AS: the system context may act as any actor, a session opened for an actor only as that
        one.
        """
        if self._has_fixed_actor and actor != self.actor:
            raise PolicyError("E7001", "Permission denied")
        with self.database.watching.layer0_changes.track(self):
            self._push_actor(self._checked_actor(actor))

    def _push_actor(self, actor: str) -> None:
        self._actors.append(actor)
        self.actor = actor

    def _checked_actor(self, actor: str) -> str:
        state = self.database.state
        base = self.transaction.transaction.view if self.transaction is not None else state.graph
        element = base.get(actor)
        allowed = self.database.settings.actor_types
        if element is None or element.targets is not None:
            raise PolicyError("E7003", f"There is no node '{actor}' to act as", fields={"actor": actor})
        if allowed and not state.schema.is_subtype(element.type, frozenset(allowed)):
            raise PolicyError(
                "E7003", f"A node of type '{element.type}' cannot be an actor", fields={"actor": actor}
            )
        return actor

    def pop_actor(self) -> None:
        if len(self._actors) <= self._has_fixed_actor:
            raise TransactionError("E5008", "END SESSION without BEGIN SESSION (SESSION_NOT_STARTED)")
        with self.database.watching.layer0_changes.track(self):
            self._actors.pop()
            self.actor = self._actors[-1] if self._actors else None

    def layer0_type_of(self, id: str) -> str | None:
        return self.database.layer0.type_of(id, self)

    # --- execution --------------------------------------------------------------------------------------------

    def abort(self, why: str) -> None:
        """Abort an open transaction. Call with the engine lock held."""
        if self.transaction is not None:
            self.transaction.abort_reason = self.transaction.abort_reason or why

    def _check_open(self) -> None:
        if self._closed:
            raise TransactionError("E5007", "The session is closed")
        self.check_not_forked()

    def check_not_forked(self) -> None:
        """Raise in a forked child: its sessions are copies of the parent's."""
        if self.database.is_forked_copy:
            raise StoreError("E6002", FORKED_PROCESS_MESSAGE)

    def _statement_failed(self) -> None:
        """Abort the open transaction after a failed statement."""
        if self.transaction is not None:
            self.transaction.abort_reason = self.transaction.abort_reason or "a statement in it failed"

    def execute_prepared(
        self, prepared: PreparedStatement, literals: tuple[Value, ...], values: Mapping[str, Any], text: str
    ) -> Result:
        """Execute one statement of a text, like `execute_without_waiting`."""
        self._check_open()
        return self._run_statement(self._dispatch, prepared, literals, values, text)

    def _run_statement(self, act: Callable[..., Result], *args: Any) -> Result:
        """Run a statement. If it fails, the open transaction is aborted; if it succeeds, triggers may run."""
        try:
            result = act(*args)
        except execution.SliceExceeded:
            raise
        except BaseException:  # also on KeyboardInterrupt: the statement is incomplete
            self._statement_failed()
            raise
        if self.database.watching.triggers:
            self.database.watching.triggers.run_pending(self.lock_scope)
        return result

    def _dispatch(
        self, prepared: PreparedStatement, literals: tuple[Value, ...], values: Mapping[str, Any], text: str
    ) -> Result:
        constants = prepared.constants(literals, values)
        statement = prepared.statement
        kind = type(statement)
        if self.transaction is not None and self.transaction.abort_reason and kind is not ast.Rollback:
            return control.reject_in_aborted_transaction(self, statement)
        if kind is ast.Match:
            return execution.read(self, prepared, constants, text)
        if kind in _MUTATIONS:
            return execution.write(self, prepared, constants, text)
        return control.STATEMENTS[kind](StatementRequest(self, prepared, constants, text))

    def executable(self, prepared: PreparedStatement, constants: tuple[Value, ...], text: str) -> Any:
        """The compiled statement for constants of these types. Call with the engine lock held."""
        signature = tuple(map(type, constants))
        epoch = self.database.state.plan_version
        known = prepared.plans.get(signature)
        if known is not None and known[0] == epoch:
            return known[1]
        compiled = self.compile(prepared, signature, text)
        prepared.plans[signature] = (self.database.state.plan_version, compiled)
        return compiled

    def compile(self, prepared: PreparedStatement, signature: tuple[type, ...], text: str) -> Executable:
        try:
            return compile_statement(prepared, prepared.statement, signature, self.database.state)
        except VedetteError as error:
            if not error.diagnostics or prepared.source == text:
                raise
            return self._compile_as_written(prepared, signature, text)

    def _compile_as_written(
        self, prepared: PreparedStatement, signature: tuple[type, ...], text: str
    ) -> Executable:
        """Compile from this text, because the cached statement was parsed from another and positions would be
        wrong.
        """
        index = [p.statement for p in self.database.statements.parse_uncached(prepared.source)].index(
            prepared.statement
        )
        own = self.database.statements.parse_uncached(text)[index]
        return compile_statement(own, own.statement, signature, self.database.state)


def merge_parameters(params: object, named: Mapping[str, Any]) -> dict[str, Any]:
    """Merge parameters from a dict and from keywords."""
    if not isinstance(params, Mapping):
        text = f"parameters must be given in a dict or as keywords, not as {type(params).__name__}"
        raise AnalysisError("E2003", text)
    return {**params, **named}


_MUTATIONS = frozenset({ast.MatchMutate, ast.Spawn, ast.Kill, ast.Link, ast.Unlink, ast.Set})
