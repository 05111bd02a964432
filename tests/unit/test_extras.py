"""vedette.extras: names the packages of each extra, and which of them are missing."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from vedette.errors import InstallationError
from vedette.extras import EXTRAS, missing_packages, require_extra, require_packages

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_extras_are_those_of_the_project() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    names = {
        extra: [Requirement(text).name.replace("-", "_") for text in requirements]
        for extra, requirements in declared.items()
    }
    assert {extra: list(packages) for extra, packages in EXTRAS.items()} == names


def test_nothing_is_missing_where_everything_is_installed() -> None:
    for extra in EXTRAS:
        assert missing_packages(extra) == ()
        require_extra(extra, "this test")


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert missing_packages("files") == ("numpy", "pypdf")
    with pytest.raises(InstallationError) as caught:
        require_extra("files", "`wqm daemon`")
    assert caught.value.text == (
        "`wqm daemon` requires the extra 'files' (not installed: numpy, pypdf): run pip install 'vedette[files]'"
    )
    assert caught.value.fields == {"extra": "files", "missing": ["numpy", "pypdf"]}


def test_only_the_named_packages_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    require_packages(["numpy"], extra="files", feature="an embedder")
