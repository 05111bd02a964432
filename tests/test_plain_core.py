"""The core does the same plain and compiled: the suite runs on the compiled one, and here some of it on the plain one.

In a process of its own, since a process has one core. What reaches inside the core (`plain_core`) is run nowhere else.
"""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.parametrize(
    "selection",
    [
        pytest.param(["-m", "plain_core", "tests/integration"], id="what reaches inside"),
        pytest.param(
            ["tests/properties/regressions/test_watch_known_cases.py"], id="what breaks other engines"
        ),
        pytest.param(["tests/stories", "-k", "memory"], id="stories"),
    ],
)
def test_the_plain_core_passes(selection: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *selection]
    plain = {**os.environ, "VEDETTE_COMPILED": "0"}
    ran = subprocess.run(command, check=False, cwd=ROOT, env=plain, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3_000:] + ran.stderr[-1_000:]
