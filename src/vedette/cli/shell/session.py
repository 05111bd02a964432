"""A conversation with a home: what is said is run and answered. It knows nothing of terminals and pipes."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Self

from vedette.cli.data_access import open_database_session
from vedette.cli.errors import CommandFailed, format_internal_error, traceback_wanted
from vedette.cli.output.display import Display
from vedette.cli.script_runner import run_part
from vedette.cli.scripts import relocate
from vedette.cli.shell.dot_commands import run_dot_command
from vedette.cli.shell.watches import HeldWatches
from vedette.clock import Clock, SystemClock
from vedette.engine.context.result import Result
from vedette.engine.data_directory import Vedette
from vedette.errors import VedetteError
from vedette.language.parser.source_file import StatementPart, parse_source_file
from vedette.language.syntax.statements import Watch

__all__ = ["ShellSession"]


class ShellSession:
    """One session at a time, in one of the databases of the home."""

    def __init__(
        self,
        home: Vedette,
        display: Display,
        *,
        database: str = "default",
        actor: str | None = None,
        timed: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.home = home
        self.display = display
        self.show_timing = timed
        self.is_closed = False
        """`.quit` was said."""
        self._actor = actor
        self._clock = clock or SystemClock()
        self._watches = HeldWatches(display)
        self.session = open_database_session(home, database, actor, display)

    def handle_input(self, text: str) -> bool:
        """Run what was said, a dot-command or a script, and show what comes of it; False when it failed."""
        try:
            if text.lstrip().startswith("."):
                run_dot_command(self, text.strip())
            else:
                self.run(text)
        except CommandFailed as error:
            self.display.failure(str(error))
        except BrokenPipeError:
            raise  # nobody listens any more
        except Exception as error:
            self._show(error)
        else:
            return True
        return False

    def _show(self, error: Exception) -> None:
        if traceback_wanted():
            traceback.print_exception(error)
        elif isinstance(error, VedetteError):
            self.display.error(error)
        else:
            self.display.failure(format_internal_error(error))

    def run(self, text: str) -> None:
        """Run every part of the text, and show after each what it made known to the watches held here."""
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
        """Go on in another database, in a new session."""
        if self.session.transaction is not None:
            raise CommandFailed("A transaction is open here: COMMIT or ROLLBACK it first, then .use again.")
        session = open_database_session(self.home, database, self._actor, self.display)
        self._watches.clear()
        self.session.close()
        self.session = session

    @property
    def prompt(self) -> str:
        """`vedette`, the database when it is not the default one, the actor, and the transaction."""
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
