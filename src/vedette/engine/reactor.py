"""Reactors: a Python callback for every event of a durable watch.

A reactor is a reliable watch with a name and a stored position. Each call is recorded in an `Invocation` node that
can be queried and watched. A failed call is recorded and not repeated; a call interrupted by a crash is repeated.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Any

from vedette.change import Event
from vedette.engine.session.watch_handle import to_event
from vedette.engine.watch_service.options import with_option
from vedette.errors import InvalidStatement, VedetteError, WatchError
from vedette.language.syntax import statements as ast
from vedette.watch.buffer import BufferedEvent

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session.watch_handle import WatchHandle

__all__ = ["INVOCATION", "Reactor"]

INVOCATION = """
--- One call of a reactor.
node Invocation {
  code_module: String,
  status: String [in: ["running", "succeeded", "failed"]],
  started_at: Timestamp,
  finished_at: Timestamp?,
  error: String?
}
"""
_POLL_SECONDS = 0.5
_CUT_SHORT = "The process ended before the call returned: the call is repeated"
_POSITION_LOST = (
    "The position of this reactor is lost: its watch was cancelled, or the reactor was away for longer than its watch"
    " is kept. It starts with a new watch; events in between were not delivered"
)

log = logging.getLogger(__name__)


class Reactor:
    """Runs in its own thread until closed. Its position stays in the store."""

    def __init__(
        self,
        database: Database,
        name: str,
        text: str,
        callback: Callable[[Event], object],
        params: Mapping[str, Any],
    ) -> None:
        self.name = name
        self._callback = callback
        self._database = database
        self._closed = Flag()
        database.define(INVOCATION)
        self._session = database.session()
        try:
            self._watch = self._attach_or_create(text, params)
        except BaseException:
            self._session.close()
            raise
        self._thread = Thread(target=self._run, name=f"vedette-reactor-{name}", daemon=True)
        self._thread.start()

    # --- watch ------------------------------------------------------------------------------------------------

    def _attach_or_create(self, text: str, params: Mapping[str, Any]) -> WatchHandle:
        """Attach the watch of an earlier run with this name, or create one."""
        parsed = self._database.statements.parse_uncached(
            text
        )  # uncached: a cached tree has the constants of another text
        statement = parsed[0].statement if len(parsed) == 1 else None
        if not isinstance(statement, ast.Watch) or statement.returns is None:
            raise InvalidStatement("E1101", "reactor() takes one WATCH statement, with RETURN")
        text = with_option(text, statement, "delivery", "reliable")
        handle_name = f"reactor {self.name}"
        try:
            handle = self._session.attach(handle_name)
        except WatchError as error:
            if error.code != "E8002":
                raise
            handle = self._session.watch(text, dict(params))
            self._check_suitable(handle)
            self._database.watching.management.name(self._session, handle.id, handle_name)
            self._record_lost_position()
        else:
            self._check_statement_unchanged(handle, text, params)
        self._session.execute(
            'MATCH i: Invocation WHERE i.code_module = $module AND i.status = "running"'
            ' SET i { status = "failed", finished_at = now(), error = $error }',
            module=self.name,
            error=_CUT_SHORT,
        )
        return handle

    def _check_suitable(self, handle: WatchHandle) -> None:
        shape, problem = handle.watch.shape, None
        if handle.watch.options.mode == "consume":
            problem = "'mode': a reactor does not delete what it receives; allowed is watch; use consume() for queues"
        elif (shape.aggregates or shape.distinct) and "Invocation" in shape.types:
            problem = (
                "'RETURN': its own invocations would change the aggregate without end; return single matches"
            )
        if problem is not None:
            handle.cancel()
            raise WatchError("E8009", f"Invalid watch option {problem}")

    def _check_statement_unchanged(self, handle: WatchHandle, text: str, params: Mapping[str, Any]) -> None:
        """Raise E8008 if the statement differs from the stored one: the position would be meaningless."""
        request = handle.watch.details.request
        prepared, literals = self._database.statements.prepare_one(text)
        if request.text != text or tuple(request.constants) != prepared.constants(literals, params):
            problem = (
                f"Reactor '{self.name}' has a position in the events of another statement: `{request.text}`"
            )
            what = f"CANCEL WATCH #{handle.id} to start over, or use another name"
            raise WatchError("E8008", f"{problem}; {what}", fields={"handle": handle.id, "option": "pattern"})

    def _record_lost_position(self) -> None:
        """If the reactor has run before but its position is gone, log and record that before it starts over."""
        earlier = "MATCH i: Invocation WHERE i.code_module = $module RETURN i.id LIMIT 1"
        if self._session.execute(earlier, module=self.name).rows:
            log.warning("Reactor %s: %s", self.name, _POSITION_LOST, extra=self._ids("reactor.position_lost"))
            self._session.execute(
                'SPAWN i: Invocation { code_module = $module, status = "failed", started_at = now(),'
                " finished_at = now(), error = $error }",
                module=self.name,
                error=_POSITION_LOST,
            )

    def _ids(self, action: str) -> dict[str, str]:
        return {"action": action, "tenant": self._database.name, "reactor": self.name}

    # --- calls ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while not self._closed.is_set():
                try:
                    entry = self._watch.next_entry(timeout=_POLL_SECONDS)
                except WatchError:  # another session has attached the watch
                    log.exception("Reactor %s stopped", self.name, extra=self._ids("reactor.failed"))
                    return
                if entry is not None:
                    self._handle(entry, runner)
                elif self._watch.status == "cancelled":
                    return

    def _handle(self, entry: BufferedEvent, runner: asyncio.Runner) -> None:
        """Call the callback once, record the invocation before and after it, then confirm the event."""
        event = to_event(entry)
        if not self._is_own_invocation(entry):
            started = 'SPAWN i: Invocation { code_module = $module, status = "running", started_at = now() }'
            if not self._write_invocation(started, module=self.name):
                return
            failure = self._call(event, runner)
            status = "failed" if failure else "succeeded"
            ended = "SET #i { status = $status, finished_at = now(), error = $error }"
            if not self._write_invocation(ended, status=status, error=failure):
                return
        self._watch.ack(event)

    def _call(self, event: Event, runner: asyncio.Runner) -> str | None:
        """Return the failure, or None. An async callback runs in the reactor's own event loop."""
        try:
            result = self._callback(event)
            if inspect.iscoroutine(result):
                runner.run(result)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            log.warning(
                "The callback of reactor %s failed: %s",
                self.name,
                error,
                extra=self._ids("reactor.call_failed"),
            )
            return failure
        return None

    def _write_invocation(self, text: str, **values: Any) -> bool:
        """Record an invocation. If commits are blocked by a full watch, retry until the reactor is closed."""
        while True:
            try:
                self._session.execute(text, **values)
            except VedetteError as error:
                final = self._database.read_only is not None or not (error.retryable or error.code == "E8005")
                if final and text.startswith("SET") and error.code == "E3601":
                    return True  # the invocation node was deleted meanwhile
                if final or self._closed.is_set():
                    log.exception("Reactor %s stopped", self.name, extra=self._ids("reactor.failed"))
                    self._closed.set()
                    return False
                self._closed.wait(_POLL_SECONDS)
            else:
                return True

    def _is_own_invocation(self, entry: BufferedEvent) -> bool:
        """True if the event is about an invocation of this reactor; calling it would never end."""
        identity = entry.delta.identity
        for id in identity if isinstance(identity, tuple) else ():
            element = self._database.state.graph.get(id) if isinstance(id, str) else None
            if element is not None and element.type == "Invocation":
                position = self._database.schema.nodes["Invocation"].layout["code_module"]
                if element.values[position] == self.name:
                    return True
        return False

    # --- public -----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The handle of its watch."""
        return self._watch.id

    @property
    def status(self) -> str:
        return self._watch.status

    @property
    def running(self) -> bool:
        """True while the reactor can be called."""
        return self._thread.is_alive() and not self._closed.is_set()

    @property
    def idle(self) -> bool:
        """True if all events so far have been handled."""
        return self._watch.idle

    def close(self) -> None:
        """Stop calling. Events wait in the store until the reactor is started again."""
        self._closed.set()
        self._thread.join()
        self._session.close()
