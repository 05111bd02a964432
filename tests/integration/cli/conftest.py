"""The command line called in an empty folder, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from vedette.cli.vedette import app
from vedette.cli.wqm import app as wqm_app

Cli = Callable[..., Result]
Wqm = Callable[..., Result]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    for name in ("VEDETTE_DATA", "VEDETTE_TRACEBACK", "VEDETTE_DURABILITY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def cli() -> Cli:
    """`cli("run", "x.mew", input="…")`: what `vedette run x.mew` does."""

    def call(
        *arguments: str, input: str | bytes | None = None, env: dict[str, str | None] | None = None
    ) -> Result:
        return CliRunner().invoke(app, list(arguments), input=input, env=env)

    return call


@pytest.fixture
def wqm() -> Wqm:
    """`wqm("watch", "list")`: what `wqm watch list` does."""

    def call(*arguments: str, input: str | None = None, fails: bool = False) -> Result:
        result = CliRunner().invoke(wqm_app, list(arguments), input=input)
        assert (result.exit_code != 0) == fails, result.output
        return result

    return call
