"""Every program in examples/ runs alone and prints the output that its first lines state."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))
TIMEOUT_SECONDS = 120
"""Time limit in seconds for one program."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Path, tmp_path: Path) -> None:
    promised = (ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or "").partition("Prints:")[
        2
    ]
    assert promised.strip(), "its docstring ends with `Prints:` and what it prints"
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == textwrap.dedent(promised).strip("\n").rstrip().splitlines()


def test_there_are_programs() -> None:
    assert {"inbox.py", "topic.py", "work_queue.py", "request_reply.py", "total_order.py"} <= {
        program.name for program in PROGRAMS
    }
