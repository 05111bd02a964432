"""The shell without a terminal: what comes through the pipe is run, and the first error ends it."""

from __future__ import annotations

from collections.abc import Iterable

from vedette.cli.shell.input import split_entries
from vedette.cli.shell.session import ShellSession

__all__ = ["run_piped"]


def run_piped(conversation: ShellSession, lines: Iterable[str]) -> bool:
    """False when something failed; nothing behind it was run then."""
    for entry in split_entries(lines):
        if not conversation.handle_input(entry):
            return False
        if conversation.is_closed:
            break
    return True
