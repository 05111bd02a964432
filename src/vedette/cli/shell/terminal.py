"""The interactive shell: a prompt with history, multi-line input, completion and colours."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import completion_is_selected, is_searching
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from vedette.cli.options import local_directory
from vedette.cli.shell.completion import CompletionContext, ShellCompleter
from vedette.cli.shell.dot_commands import COMMANDS
from vedette.cli.shell.highlighting import STYLES, MewLexer
from vedette.cli.shell.input import handle_input, is_complete
from vedette.cli.shell.session import ShellSession
from vedette.cli.version import version_text

__all__ = ["defer_interrupts", "history_file", "prompt_session", "run_interactive"]

_INTERRUPTED_EXIT_CODE = 130
_STILL_RUNNING = (
    b"\nThe statement is still running. Press Ctrl-C again to exit at once; committed data is safe.\n"
)


def run_interactive(shell: ShellSession, session: PromptSession[str] | None = None) -> None:
    """Read and run entries until `.quit` or Ctrl-D. Errors are printed."""
    session = session or prompt_session(shell)
    shell.display.note(f"{version_text()}, {shell.vedette.location}. Type `.help` for help, Ctrl-D to exit.")
    while not shell.is_closed:
        try:
            text = session.prompt([("class:prompt", f"{shell.prompt}> ")])
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        if text.strip():
            with defer_interrupts():
                handle_input(shell, text)


def prompt_session(shell: ShellSession, **devices: Any) -> PromptSession[str]:
    """Create the prompt. `devices` replaces `input` and `output` of prompt_toolkit in tests."""
    return PromptSession(
        multiline=True,
        prompt_continuation=lambda width, line, wrapped: " " * max(0, width - 4) + "..> "[-width:],
        history=_history(shell.vedette.location),
        lexer=MewLexer(),
        style=Style.from_dict(STYLES),
        completer=_completer(shell),
        complete_while_typing=False,
        key_bindings=_keys(),
        **devices,
    )


def history_file(location: str) -> Path:
    """Return the history file: in the data directory, or in the user's state directory."""
    directory = local_directory(location)
    if directory is not None:
        return directory / "shell_history"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "vedette" / "shell_history"


def _history(location: str) -> History:
    """Open the history file with mode 0600. The history is in memory if the file cannot be created."""
    file = history_file(location)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(file)


def _completer(shell: ShellSession) -> Completer:
    def completion_context() -> CompletionContext:
        session = shell.session
        return CompletionContext(
            schema=session.database.schema,
            bindings=tuple(session.bindings),
            databases=tuple(shell.vedette.databases()),
            commands=tuple(COMMANDS),
        )

    return ShellCompleter(completion_context)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=~is_searching & ~completion_is_selected)
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_after_cursor.strip() == "" and is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("enter", filter=completion_is_selected)
    def choose(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Inside the block, the first Ctrl-C prints a note and the second exits the process. Main thread only.

    A statement cannot be stopped halfway, because that would leave the engine in an inconsistent state. Exiting the
    process is safe: acknowledged commits are on disk.
    """
    asked = False

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(_INTERRUPTED_EXIT_CODE)
        asked = True
        os.write(2, _STILL_RUNNING)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
