"""The shell at a terminal: a prompt with history, several lines, completion and colours."""

from __future__ import annotations

import os
from pathlib import Path
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
from vedette.cli.shell.input import is_complete
from vedette.cli.shell.interruption import defer_interrupts
from vedette.cli.shell.session import ShellSession
from vedette.cli.version import version_text

__all__ = ["history_file", "prompt_session", "run_interactive"]


def run_interactive(conversation: ShellSession, session: PromptSession[str] | None = None) -> None:
    """Until `.quit` or Ctrl-D. An error is shown, and the conversation goes on."""
    session = session or prompt_session(conversation)
    conversation.display.note(
        f"{version_text()}, {conversation.home.location}. `.help` helps, Ctrl-D leaves."
    )
    while not conversation.is_closed:
        try:
            text = session.prompt([("class:prompt", f"{conversation.prompt}> ")])
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        if text.strip():
            with defer_interrupts():
                conversation.handle_input(text)


def prompt_session(conversation: ShellSession, **devices: Any) -> PromptSession[str]:
    """`devices`: `input` and `output` of prompt_toolkit, when they are not the terminal."""
    return PromptSession(
        multiline=True,
        prompt_continuation=lambda width, line, wrapped: " " * max(0, width - 4) + "..> "[-width:],
        history=_history(conversation.home.location),
        lexer=MewLexer(),
        style=Style.from_dict(STYLES),
        completer=_completer(conversation),
        complete_while_typing=False,
        key_bindings=_keys(),
        **devices,
    )


def history_file(location: str) -> Path:
    """In the data directory; else where programs keep their state."""
    directory = local_directory(location)
    if directory is not None:
        return directory / "shell_history"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "vedette" / "shell_history"


def _history(location: str) -> History:
    """Kept in a file that only its owner reads; in memory when there can be no file."""
    file = history_file(location)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(file)


def _completer(conversation: ShellSession) -> Completer:
    def vocabulary() -> CompletionContext:
        session = conversation.session
        return CompletionContext(
            schema=session.database.schema,
            bindings=tuple(session.bindings),
            databases=tuple(conversation.home.databases()),
            commands=tuple(COMMANDS),
        )

    return ShellCompleter(vocabulary)


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
