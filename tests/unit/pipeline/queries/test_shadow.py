"""Other versions of Vedette are found, and run from where they are; how far a batch is."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vedette.errors import PipelineError
from vedette.pipeline.queries.shadow import find_candidate
from vedette.pipeline.spark_progress import StageTally

MAIN = "print('another version')"


def tree(folder: Path) -> Path:
    package = folder / "vedette"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(MAIN)
    return folder


def said(candidate: Any) -> str:
    done = subprocess.run(
        candidate.command(), env=candidate.environment(), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("inner", ["", "src"])
def test_a_folder_with_the_package(tmp_path: Path, inner: str):
    tree(tmp_path / "checkout" / inner)
    assert said(find_candidate(tmp_path / "checkout", tmp_path / "work")) == "another version"


def test_a_wheel(tmp_path: Path):
    tree(tmp_path / "content")
    wheel = tmp_path / "vedette-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("vedette/__init__.py", "vedette/__main__.py"):
            archive.write(tmp_path / "content" / name, name)
    assert said(find_candidate(wheel, tmp_path / "work")) == "another version"


def test_a_virtual_environment(tmp_path: Path):
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
        ("nothing", lambda path: path.mkdir(), "no candidate"),
        ("other.whl", archive_of("other/__init__.py"), "something else"),
        ("evil.whl", archive_of("vedette/__init__.py", "../evil.py"), "outside"),
        ("broken.whl", lambda path: path.write_bytes(b"x"), "no wheel"),
    ],
)
def test_what_is_no_candidate_is_said(tmp_path: Path, name: str, make: Any, words: str):
    make(tmp_path / name)
    with pytest.raises(PipelineError, match=words) as caught:
        find_candidate(tmp_path / name, tmp_path / "work")
    assert caught.value.code == "E6303"


class Tracker:
    def __init__(self) -> None:
        self.stages: dict[int, tuple[int, int]] = {}

    def getActiveStageIds(self) -> list[int]:
        return list(self.stages)

    def getStageInfo(self, stageId: int) -> Any:
        found = self.stages.get(stageId)
        return SimpleNamespace(numCompletedTasks=found[0], numTasks=found[1]) if found else None


def test_progress_never_goes_back():
    tracker, tally = Tracker(), StageTally()
    assert tally.look(tracker) == (0, 0)
    tracker.stages = {1: (1, 4)}
    assert tally.look(tracker) == (1, 4)
    tracker.stages = {2: (0, 2)}  # the first is done, and forgotten
    assert tally.look(tracker) == (4, 6)
    tracker.stages = {2: (2, 2)}
    assert tally.look(tracker) == (6, 6)
