"""Reactors: Python called for every event of a durable watch (seeds/mew-watch-system.md §9.3).

A reactor is a reliable watch under a name, with a stored position. Each call leaves an `Invocation` node that can be
queried and watched. A call that fails is recorded and not repeated; one that a crash cut short is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Any

from vedette.change import Event
from vedette.engine.watch_options import with_option
from vedette.errors import InvalidStatement, VedetteError, WatchError
from vedette.language import statements as ast

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.watch_handle import WatchHandle

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
_LOOK_SECONDS = 0.5

log = logging.getLogger(__name__)


class Reactor:
    """Runs in a thread of its own until it is closed; its position stays in the store."""

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
        database.define(INVOCATION)
        self._session = database.session()
        self._watch = self._take_up(text, params)
        self._closed = Flag()
        self._thread = Thread(target=self._run, name=f"vedette-reactor-{name}", daemon=True)
        self._thread.start()

    def _take_up(self, text: str, params: Mapping[str, Any]) -> WatchHandle:
        """The watch of an earlier run under this name, or a new one."""
        handle_name = f"reactor {self.name}"
        try:
            return self._session.attach(handle_name)
        except WatchError as error:
            if error.code != "E8002":
                raise
        parsed = self._database.statements.parse(text)  # afresh: a cached tree has another text's constants
        statement = parsed[0].statement if len(parsed) == 1 else None
        if not isinstance(statement, ast.Watch):
            raise InvalidStatement("E1101", "reactor() takes one WATCH statement")
        handle = self._session.watch(with_option(text, statement, "delivery", "reliable"), dict(params))
        self._database.watching.management.name(self._session, handle.id, handle_name)
        return handle

    def _run(self) -> None:
        while not self._closed.is_set():
            event = self._watch.next(timeout=_LOOK_SECONDS)
            if event is None:
                if self._watch.status == "cancelled":
                    return
                continue
            try:
                self._call(event)
            except VedetteError:
                log.exception("Reactor %s cannot go on", self.name, extra={"action": "reactor.failed"})
                return

    def _call(self, event: Event) -> None:
        """Call back once, between two notes of it; then the event is done with."""
        session = self._session
        session.execute(
            'SPAWN i: Invocation { code_module = $module, status = "running", started_at = now() }',
            module=self.name,
        )
        failure = None
        try:
            self._callback(event)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            log.warning("Reactor %s failed: %s", self.name, failure, extra={"action": "reactor.call_failed"})
        session.execute(
            "SET #i { status = $status, finished_at = now(), error = $error }",
            status="failed" if failure else "succeeded",
            error=failure,
        )
        self._watch.ack(event)

    @property
    def id(self) -> str:
        """The handle of its watch."""
        return self._watch.id

    @property
    def status(self) -> str:
        return self._watch.status

    @property
    def idle(self) -> bool:
        """Whether everything that happened so far has been dealt with."""
        return self._watch.idle

    def close(self) -> None:
        """Stop calling; events wait in the store until the reactor is there again."""
        self._closed.set()
        self._thread.join()
        self._session.close()
