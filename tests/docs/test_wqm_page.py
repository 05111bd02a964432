"""docs/reference/wqm.md lists every command of wqm with every option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from tests.support.paths import DOCS
from vedette.cli.wqm import app

PAGE = (DOCS / "reference" / "wqm.md").read_text(encoding="utf-8")


def listed() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for section in re.split(r"^## wqm ", PAGE, flags=re.MULTILINE)[1:]:
        group = section.split("\n", 1)[0]
        for command, options in re.findall(r"^\| `([^`]+)` \|([^|]*)\|", section, re.MULTILINE):
            words = " ".join(word for word in command.split() if word.islower())
            name = words if group in ("search", "daemon") else f"{group} {words}"
            found[name] = {word for part in re.findall(r"`([^`]+)`", options) for word in part.split()}
    return found


def commands(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    for word, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{name} {word}".strip())
    if not hasattr(command, "commands"):
        options = {
            text
            for parameter in command.params
            if parameter.param_type_name == "option" and not parameter.hidden
            for text in [*parameter.opts, *parameter.secondary_opts]
        }
        yield name, options - {"--data", "--help", "-h"}


def test_every_command_and_option_is_listed() -> None:
    assert listed() == dict(commands(typer.main.get_command(app), ""))
