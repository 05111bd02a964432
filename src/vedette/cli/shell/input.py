"""Input of the shell: where an entry ends, and what runs it. The parser decides whether a text is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vedette.cli.errors import CommandFailed
from vedette.cli.scripts import check_completeness
from vedette.cli.shell.dot_commands import run_dot_command
from vedette.cli.shell.session import ShellSession

__all__ = ["handle_input", "is_complete", "run_piped", "split_entries"]


def handle_input(shell: ShellSession, text: str) -> bool:
    """Run a dot-command or a script and print its result. Return False if it failed."""
    try:
        if text.lstrip().startswith("."):
            run_dot_command(shell, text.strip())
        else:
            shell.run(text)
    except CommandFailed as error:
        shell.display.failure(str(error))
    except BrokenPipeError:
        raise  # the reader of the output has exited
    except Exception as error:
        shell.show_error(error)
    else:
        return True
    return False


def run_piped(shell: ShellSession, lines: Iterable[str]) -> bool:
    """Run the entries of a pipe. Return False at the first failure; later entries are not run."""
    for entry in split_entries(lines):
        if not handle_input(shell, entry):
            return False
        if shell.is_closed:
            break
    return True


def is_complete(text: str) -> bool:
    """Return whether Enter runs the text instead of starting a new line.

    A single complete line runs at once. Several lines continue until `;` or an empty line, because a complete statement
    may have further clauses. An empty line always ends the entry. Text that no continuation can make valid runs too, so
    that the error is shown.
    """
    first, *more = text.split("\n")
    if first.lstrip().startswith(".") or not text.strip():
        return True
    if more and not more[-1].strip():
        return True
    completeness = check_completeness(text)
    if completeness == "incomplete":
        return False
    return completeness == "invalid" or not more or text.rstrip().endswith(";")


def split_entries(lines: Iterable[str]) -> Iterator[str]:
    """Split piped input into entries: scripts that end with `;`, an empty line or the end, and dot-commands."""
    text = ""
    for line in lines:
        stripped = line.strip()
        if stripped.startswith(".") and check_completeness(text) != "incomplete":
            yield from _nonblank(text)
            yield stripped
            text = ""
            continue
        text += line
        if (not stripped or stripped.endswith(";")) and check_completeness(text) != "incomplete":
            yield from _nonblank(text)
            text = ""
    yield from _nonblank(text)


def _nonblank(text: str) -> Iterator[str]:
    if text.strip():
        yield text
