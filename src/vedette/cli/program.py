"""What the programs `vedette` and `wqm` have in common: how they fail, how they show help, and `--version`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vedette.cli.errors import CommandFailed, error_text, format_internal_error, traceback_wanted
from vedette.cli.version import version_text
from vedette.errors import VedetteError

__all__ = ["create_app"]

FAILED = 1
"""The exit code of a command that went wrong; 2 is a mistake in the command line itself, 130 an interruption."""


class ErrorReportingGroup(TyperGroup):
    """Shows errors as sentences, never as tracebacks, unless VEDETTE_TRACEBACK is set."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if _is_typer_exit(error) or traceback_wanted():
                raise
            _show(error)
            raise typer.Exit(FAILED) from error


def _is_typer_exit(error: Exception) -> bool:
    """How typer ends a command: wrong options and exits have an exit code; a closed pipe it knows too."""
    return hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError)


def _show(error: Exception) -> None:
    from vedette.cli.output.display import console_for

    console = console_for(error=True)
    if isinstance(error, CommandFailed):
        console.print(str(error), style="red", soft_wrap=True)
    else:
        text = error_text(error) if isinstance(error, VedetteError) else format_internal_error(error)
        console.print(text, soft_wrap=True)


def create_app(name: str, *, help: str, epilog: str) -> typer.Typer:
    """A program without commands yet."""
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


def _version(wanted: bool) -> None:
    if wanted:
        print(version_text())
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
