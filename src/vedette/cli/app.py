"""The commands put together, and what becomes of an error that one of them did not expect."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vedette.cli.commands.config import config_app
from vedette.cli.commands.define import define
from vedette.cli.commands.doctor import doctor
from vedette.cli.commands.gateway import gateway
from vedette.cli.commands.parse import parse
from vedette.cli.commands.pipeline import pipeline
from vedette.cli.commands.replaying import capture, replay, shadow
from vedette.cli.commands.run import run
from vedette.cli.commands.serve import serve
from vedette.cli.commands.shell import shell
from vedette.cli.commands.source import source_app
from vedette.cli.commands.watch import watch
from vedette.cli.failure import CommandFailed, error_text, traceback_wanted, unexpected_text
from vedette.cli.version import version_text
from vedette.errors import VedetteError

__all__ = ["app"]

FAILED = 1
"""The exit code of a command that went wrong; 2 is a mistake in the command line itself, 130 an interruption."""


class KindGroup(TyperGroup):
    """Shows errors as sentences, never as tracebacks, unless VEDETTE_TRACEBACK is set."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if _is_typers_own(error) or traceback_wanted():
                raise
            _show(error)
            raise typer.Exit(FAILED) from error


def _is_typers_own(error: Exception) -> bool:
    """How typer ends a command: wrong options and exits have an exit code; a closed pipe it knows too."""
    return hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError)


def _show(error: Exception) -> None:
    from vedette.cli.display import console_for

    console = console_for(error=True)
    if isinstance(error, CommandFailed):
        console.print(str(error), style="red", soft_wrap=True)
    else:
        text = error_text(error) if isinstance(error, VedetteError) else unexpected_text(error)
        console.print(text, soft_wrap=True)


app = typer.Typer(
    name="vedette",
    cls=KindGroup,
    help="A reactive watch platform: a graph that tells you when what you care about becomes true, changes or ends.",
    epilog="Start with `vedette serve --demo`, or `vedette shell` and `.help`. Each command has its own --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(version_text())
        raise typer.Exit


@app.callback()
def vedette(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for command in (serve, gateway, pipeline, capture, replay, shadow, shell, run, watch, define, parse, doctor):
    app.command()(command)
app.add_typer(source_app, name="source")
app.add_typer(config_app, name="config")
