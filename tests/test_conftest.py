"""The rules of tests/conftest.py, tested with a small suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

CONFTEST = """
from tests.conftest import pytest_collection_modifyitems, pytest_make_collect_report, pytest_runtest_makereport
"""

SUITE = """
import pytest

def test_plain(): pass

@pytest.mark.soak
def test_long(): pass

@pytest.mark.xfail
def test_known_gap(): assert False
"""

SKIPPED_TEST = """
import pytest

def test_skipped(): pytest.skip("no server")
"""

SKIPPED_MODULE = """
import pytest

pytest.importorskip("no_such_module_anywhere")
"""


def run_suite(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_suite.py").write_text(text)
    inherited = {name: value for name, value in os.environ.items() if name not in {"CI", "VEDETTE_SOAK"}}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", folder],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_soak_tests_are_deselected_in_an_ordinary_run(tmp_path: Path) -> None:
    done = run_suite(tmp_path, SUITE)
    assert "1 passed, 1 deselected, 1 xfailed" in done.stdout, done.stdout
    assert done.returncode == 0


def test_soak_tests_run_when_asked_for(tmp_path: Path) -> None:
    done = run_suite(tmp_path, SUITE, VEDETTE_SOAK="1", CI="true")
    assert "2 passed, 1 xfailed" in done.stdout, done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize("text", [SKIPPED_TEST, SKIPPED_MODULE])
def test_skip_passes_locally_and_fails_in_ci(tmp_path: Path, text: str) -> None:
    locally = run_suite(tmp_path, text + SUITE)
    assert locally.returncode == (0 if text == SKIPPED_TEST else 5), locally.stdout
    in_ci = run_suite(tmp_path, text + SUITE, CI="true")
    assert in_ci.returncode not in {0, 5}, in_ci.stdout
    assert "in CI nothing may be" in in_ci.stdout
