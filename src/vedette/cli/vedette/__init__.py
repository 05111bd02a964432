"""The program `vedette` and its commands."""

from __future__ import annotations

from vedette.cli.program import create_app
from vedette.cli.vedette.config import config_app
from vedette.cli.vedette.define import define
from vedette.cli.vedette.doctor import doctor
from vedette.cli.vedette.gateway import gateway
from vedette.cli.vedette.parse import parse
from vedette.cli.vedette.pipeline import pipeline
from vedette.cli.vedette.replay import capture, replay, shadow
from vedette.cli.vedette.run import run
from vedette.cli.vedette.serve import serve
from vedette.cli.vedette.shell import shell
from vedette.cli.vedette.source import source_app
from vedette.cli.vedette.watch import watch

__all__ = ["app"]

app = create_app(
    "vedette",
    help="A reactive database: one WATCH statement for live queries, work queues, triggers and search.",
    epilog="Start with `vedette serve --demo`, or `vedette shell` and `.help`. Each command has its own --help.",
)
for command in (serve, gateway, pipeline, capture, replay, shadow, shell, run, watch, define, parse, doctor):
    app.command(context_settings={"allow_extra_args": command is watch})(
        command
    )  # the command reports surplus arguments itself
app.add_typer(source_app, name="source")
app.add_typer(config_app, name="config")
