"""A candidate is found in a folder, a wheel or a virtual environment, and its program runs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from vedette.errors import PipelineError
from vedette.pipeline.queries.shadow import find_candidate

MAIN = "print('another version')"


def tree(folder: Path) -> Path:
    package = folder / "vedette"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(MAIN)
    return folder


def output_of(candidate: Any) -> str:
    done = subprocess.run(
        candidate.command(), env=candidate.environment(), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("inner", ["", "src"])
def test_a_folder_with_the_package_is_a_candidate(tmp_path: Path, inner: str):
    tree(tmp_path / "checkout" / inner)
    assert output_of(find_candidate(tmp_path / "checkout", tmp_path / "work")) == "another version"


def test_a_wheel_is_a_candidate(tmp_path: Path):
    tree(tmp_path / "content")
    wheel = tmp_path / "vedette-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("vedette/__init__.py", "vedette/__main__.py"):
            archive.write(tmp_path / "content" / name, name)
    assert output_of(find_candidate(wheel, tmp_path / "work")) == "another version"


def test_a_virtual_environment_is_a_candidate(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    found = find_candidate(tmp_path, tmp_path / "work")
    assert (found.python, found.path) == (str(tmp_path / "bin" / "python"), None)


def archive_of(*names: str) -> Any:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "")

    return write


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("nothing", lambda path: path.mkdir(), "not a candidate"),
        ("other.whl", archive_of("other/__init__.py"), "not a wheel of Vedette"),
        ("evil.whl", archive_of("vedette/__init__.py", "../evil.py"), "outside its folder"),
        ("broken.whl", lambda path: path.write_bytes(b"x"), "is not a wheel"),
    ],
)
def test_an_invalid_candidate_is_refused(tmp_path: Path, name: str, make: Any, words: str):
    make(tmp_path / name)
    with pytest.raises(PipelineError, match=words) as caught:
        find_candidate(tmp_path / name, tmp_path / "work")
    assert caught.value.code == "E6303"
