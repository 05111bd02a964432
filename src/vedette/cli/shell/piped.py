"""The shell without a terminal: what comes through the pipe is run, and the first error ends it."""

from __future__ import annotations

from collections.abc import Iterable

from vedette.cli.shell.input import entries
from vedette.cli.shell.session import Conversation

__all__ = ["converse_by_pipe"]


def converse_by_pipe(conversation: Conversation, lines: Iterable[str]) -> bool:
    """False when something failed; nothing behind it was run then."""
    for entry in entries(lines):
        if not conversation.hear(entry):
            return False
        if conversation.ended:
            break
    return True
