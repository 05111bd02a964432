"""Packages import only packages of lower layers (order: pyproject.toml, reasons: docs/design/layers.md)."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.modules import ROOT


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package vedette below `source`. PYTHONPATH goes before the installed project."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", ROOT / "pyproject.toml", "--no-cache"],
        env={"PYTHONPATH": str(source), "LC_ALL": "C.UTF-8"},
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_layers_are_kept() -> None:
    done = lint_imports(ROOT / "src")
    assert done.returncode == 0, f"an import goes up instead of down:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("language", "engine"),
        ("watch", "queue"),
        ("queue", "policy"),
        ("storage", "watch"),
        ("errors", "language"),
        ("engine", "testing"),
        ("sources", "pipeline"),
    ],
)
def test_an_import_that_goes_up_is_found(tmp_path: Path, importer: str, imported: str) -> None:
    write_package(tmp_path, {importer: f"from vedette import {imported}", imported: ""})
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert f"vedette.{importer} is not allowed to import vedette.{imported}" in done.stdout


def test_an_import_of_a_later_stage_of_the_language_is_found(tmp_path: Path) -> None:
    write_package(tmp_path, {"language.printer": "from vedette.language import parser"})
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "vedette.language.printer is not allowed to import vedette.language.parser" in done.stdout


def test_a_package_without_a_layer_is_found(tmp_path: Path) -> None:
    write_package(tmp_path, {"stray": ""})
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "stray" in done.stdout


def test_a_layer_without_a_package_is_found(tmp_path: Path) -> None:
    write_package(tmp_path, {})
    (tmp_path / "vedette" / "graph.py").unlink()
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "graph" in done.stdout + done.stderr


def write_package(folder: Path, modules: dict[str, str]) -> None:
    """Write a package with an empty module for every layer, and these modules (dotted name to text)."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = [contract for contract in contracts if contract["type"] == "layers"]
    names = ["vedette"]
    for contract in layered:
        layers = [name.strip() for layer in contract["layers"] for name in re.split("[:|]", layer)]
        names += [f"{container}.{name}" for container in contract["containers"] for name in layers]
    texts = {**dict.fromkeys(names, ""), **{f"vedette.{name}": text for name, text in modules.items()}}
    for name, text in texts.items():
        path = folder.joinpath(*name.split("."))
        is_package = any(other.startswith(f"{name}.") for other in texts)
        file = path / "__init__.py" if is_package else path.with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
