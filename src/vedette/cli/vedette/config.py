"""`vedette config`: settings in effect."""

from __future__ import annotations

import os
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption, JsonOption

__all__ = ["config_app"]

config_app = typer.Typer(
    help="Settings in effect and their origin.", no_args_is_help=True, rich_markup_mode=None
)


@config_app.callback()
def config() -> None:
    """Settings in effect and their origin."""


@config_app.command()
def show(data: DataOption = DEFAULT_DATA, json: JsonOption = False) -> None:
    """Show every setting, its value, source and meaning.

    The environment variable VEDETTE_NAME overrides vedette.toml in the data directory, which overrides the default.
    Nothing is opened or changed.

    \b
    Examples:
      vedette config show
      VEDETTE_DURABILITY=relaxed vedette config show --data /var/lib/vedette --json
    """
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.output.tables import json_line

    records = _settings(data)
    if json:
        for record in records:
            print(json_line(record))
        return
    TableDisplay().show_table(
        ["setting", "value", "from", "about"], [list(record.values()) for record in records]
    )


def _settings(location: str) -> list[dict[str, Any]]:
    from vedette.cli.options import local_directory
    from vedette.settings import SETTINGS_FILE, Settings, load_settings

    directory = local_directory(location)
    in_force = load_settings(directory, os.environ)
    written = _names_in_file(directory / SETTINGS_FILE) if directory is not None else frozenset()
    return [
        {
            "setting": each.name,
            "value": getattr(in_force, each.name),
            "from": _origin(each.name, written),
            "about": each.metadata["about"],
        }
        for each in fields(Settings)
    ]


def _names_in_file(file: Path) -> frozenset[str]:
    """Return the names that the file sets. `load_settings` has validated them."""
    return frozenset(tomllib.loads(file.read_text(encoding="utf-8"))) if file.is_file() else frozenset()


def _origin(name: str, written: frozenset[str]) -> str:
    if f"VEDETTE_{name.upper()}" in os.environ:
        return "environment"
    return "file" if name in written else "default"
