"""The state of a shell: the open session, its watches and options. Independent of terminals and pipes."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Self

from vedette.cli.data_access import open_database_session
from vedette.cli.errors import CommandFailed, format_internal_error, should_print_traceback
from vedette.cli.output.display import Display
from vedette.cli.script_runner import run_part
from vedette.cli.scripts import relocate
from vedette.clock import Clock, SystemClock
from vedette.engine.context.result import Result
from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import VedetteError
from vedette.language.parser.source_file import StatementPart, parse_source_file
from vedette.language.syntax.statements import Watch

__all__ = ["ShellSession"]


class ShellSession:
    """Runs input in one session at a time, in one database of the data directory."""

    def __init__(
        self,
        vedette: Vedette,
        display: Display,
        *,
        database: str = "default",
        actor: str | None = None,
        show_timing: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.vedette = vedette
        self.display = display
        self.show_timing = show_timing
        self.is_closed = False
        """True after `.quit`."""
        self._actor = actor
        self._clock = clock or SystemClock()
        self._watches = _ShellWatches(display)
        self.session = open_database_session(vedette, database, actor, display)

    def show_error(self, error: Exception) -> None:
        if should_print_traceback():
            traceback.print_exception(error)
        elif isinstance(error, VedetteError):
            self.display.error(error)
        else:
            self.display.failure(format_internal_error(error))

    def run(self, text: str) -> None:
        """Run every part of the text. After each part, print the events of the shell's watches."""
        for part in parse_source_file(text):
            if isinstance(part, StatementPart) and isinstance(part.tree, Watch):
                self._start_watch(part, text)
            else:
                run_part(
                    self.session, part, text, self.display, clock=self._clock if self.show_timing else None
                )
            self._watches.print_events()

    def _start_watch(self, part: StatementPart, source: str) -> None:
        try:
            handle = self._watches.start(self.session, part.text)
        except VedetteError as error:
            relocate(error, part, source)
            raise
        self.display.result(Result(handle=handle))

    def use(self, database: str) -> None:
        """Continue in another database, in a new session."""
        if self.session.transaction is not None:
            raise CommandFailed("A transaction is open: COMMIT or ROLLBACK it first, then repeat .use.")
        session = open_database_session(self.vedette, database, self._actor, self.display)
        self._watches.clear()
        self.session.close()
        self.session = session

    @property
    def prompt(self) -> str:
        """`vedette`, the database if it is not the default one, the actor, and the state of the transaction."""
        name = self.session.database.name
        words = ["vedette" if name == "default" else f"vedette:{name}"]
        if self.session.actor is not None:
            words.append(f"as {self.session.actor}")
        if self.session.transaction is not None:
            words.append("[aborted]" if self.session.transaction.abort_reason else "[transaction]")
        return " ".join(words)

    def close(self) -> None:
        if self.session.transaction is not None:
            self.display.note("The open transaction was rolled back.")
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _ShellWatches:
    """The watches that were started in the shell, by id. They end with the session."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._handles: dict[str, WatchHandle] = {}

    def start(self, session: Session, text: str) -> str:
        """Create a watch and return its id."""
        handle = session.watch(text)
        self._handles[handle.id] = handle
        return handle.id

    def print_events(self) -> None:
        """Print the events that are ready. Watches that have ended are removed."""
        for id, handle in list(self._handles.items()):
            try:
                for event in handle.poll():
                    self._display.event(handle.name or id, event)
                for record in handle.errors():
                    self._display.warning(f"{handle.name or id}: {record}")
            except VedetteError as error:
                del self._handles[id]
                self._display.error(error)
            else:
                if handle.status == "cancelled":
                    del self._handles[id]

    def clear(self) -> None:
        self._handles.clear()
