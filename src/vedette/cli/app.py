"""The commands of `vedette` put together."""

from __future__ import annotations

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
from vedette.cli.frame import new_program

__all__ = ["app"]

app = new_program(
    "vedette",
    help="A reactive watch platform: a graph that tells you when what you care about becomes true, changes or ends.",
    epilog="Start with `vedette serve --demo`, or `vedette shell` and `.help`. Each command has its own --help.",
)
for command in (serve, gateway, pipeline, capture, replay, shadow, shell, run, watch, define, parse, doctor):
    app.command(context_settings={"allow_extra_args": command is watch})(command)  # it says what is too much
app.add_typer(source_app, name="source")
app.add_typer(config_app, name="config")
