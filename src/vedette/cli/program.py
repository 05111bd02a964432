"""The frame of the programs `vedette` and `wqm`: error output, help, `--version`, and how to call them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vedette.cli.errors import CommandFailed, error_text, format_internal_error, should_print_traceback
from vedette.cli.version import version_text
from vedette.errors import VedetteError
from vedette.processes.startup_error import StartupError

__all__ = ["command_path", "create_app"]

FAILED = 1
"""Exit code of a failed command. 2 is an invalid command line, 130 an interruption."""


class ErrorReportingGroup(TyperGroup):
    """Prints errors as sentences. VEDETTE_TRACEBACK=1 prints the traceback instead."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if _is_typer_exit(error) or should_print_traceback():
                raise
            _show(error)
            raise typer.Exit(FAILED) from error


def _is_typer_exit(error: Exception) -> bool:
    """True for exceptions that typer handles itself: invalid options, exits and a closed pipe."""
    return hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError)


def _show(error: Exception) -> None:
    from vedette.cli.output.display import console_for

    console = console_for(error=True)
    if isinstance(error, CommandFailed | StartupError):
        console.print(str(error), style="red", soft_wrap=True)
    else:
        text = error_text(error) if isinstance(error, VedetteError) else format_internal_error(error)
        console.print(text, soft_wrap=True)


def create_app(name: str, *, help: str, epilog: str) -> typer.Typer:
    """Create a program without commands."""
    program = typer.Typer(
        name=name,
        cls=ErrorReportingGroup,
        help=help,
        epilog=epilog,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_program)
    return program


def _print_version(requested: bool) -> None:
    if requested:
        print(version_text())
        raise typer.Exit


def _program(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def command_path(program: str, interpreter: str = sys.executable) -> str:
    """Return how to call a program that is installed beside the interpreter.

    This is the bare name if the shell finds exactly this program. Otherwise it is the path, relative if the program is
    below the current directory. Hints print it, so that users can copy them.
    """
    beside, found = Path(interpreter).with_name(program), shutil.which(program)
    if not beside.is_file() or (found is not None and Path(found).samefile(beside)):
        return program
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)
